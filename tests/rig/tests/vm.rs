//! Emulated machines: results, errors, and cleanup. Needs root, qemu and the unpacked kernel. These machines are as
//! small as possible; the tests of the whole program use the large one.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_rig::{Vm, VmError, VmSpec};

fn small() -> VmSpec {
    VmSpec { cpus: 1, nodes: 1, queues: 1, within: Duration::from_secs(300), ..VmSpec::default() }
}

fn sh(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

struct Ended {
    code: Result<u8, VmError>,
    out: String,
    err: String,
}

fn finish(vm: Vm, stop: &AtomicBool) -> Ended {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = vm.finish(&mut out, &mut err, stop);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code, out: text(out), err: text(err) }
}

fn run(spec: &VmSpec, script: &str) -> Ended {
    finish(spec.boot(&sh(script)).unwrap(), &AtomicBool::new(false))
}

/// Labs of this process: none once each machine is finished.
fn own_labs() -> Vec<String> {
    let labs = udpath_lab::list().unwrap().into_iter();
    labs.filter(|lab| lab.blueprint.pid == std::process::id()).map(|lab| lab.blueprint.name).collect()
}

/// One after another: two machines at once are no faster, and each would see the other's lab.
#[test]
fn emulated_machines() {
    udpath_lab::needs_root!();
    output_files_folder_and_code_come_back();
    a_panic_is_reported_in_the_kernels_words();
    a_kernel_that_does_not_come_up_is_booted_twice();
    time_runs_out();
    the_caller_may_stop_it();
    a_reader_that_goes_away_ends_it();
    invalid_specs_are_rejected_before_anything_is_created();
}

fn output_files_folder_and_code_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    std::fs::write(&note, "from the host\n").unwrap();
    let out = folder.path().join("out, and a comma");
    std::fs::create_dir(&out).unwrap();
    let spec = VmSpec { share: Some(out.clone()), ..small() };
    // A dynamic program from the host, and a file with a name of its own.
    let mut spec = spec.file(Path::new("/usr/bin/env"));
    spec.files.push((note, "/etc/a/note".to_owned()));
    // More output than any pipe holds; a program that reopens its stderr; a background process that holds stdout.
    let script = "cat /etc/a/note; /files/env printf '%s\\n' \"it's\"; seq 100000; echo talk > /dev/stderr; \
                  mkdir /out/d; nproc > /out/d/file; ln -s file /out/d/link; sleep 1000 & exit 7";
    let ended = run(&spec, script);
    assert_eq!(ended.code.unwrap(), 7, "{}", ended.err);
    let numbers: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(ended.out, format!("from the host\nit's\n{numbers}"));
    assert_eq!(ended.err, "talk\n");
    assert_eq!(std::fs::read_to_string(out.join("d/link")).unwrap(), "1\n");
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn a_panic_is_reported_in_the_kernels_words() {
    let error = run(&small(), "echo c > /proc/sysrq-trigger; sleep 60").code.unwrap_err();
    assert!(matches!(error, VmError::Panicked { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("Kernel panic - not syncing: sysrq triggered crash"), "{said}");
    // Power off without a panic and without an exit code.
    let error = run(&small(), "poweroff -f; sleep 60").code.unwrap_err();
    assert!(matches!(error, VmError::WentOff { .. }), "{error}");
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn a_kernel_that_does_not_come_up_is_booted_twice() {
    // It takes the place of the first process, and is no program.
    let mut spec = small();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program\n").unwrap();
    spec.files.push((text, "/init".to_owned()));
    let error = run(&spec, "true").code.unwrap_err();
    assert!(matches!(error, VmError::NotBooted { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("panicked twice before its first process"), "{said}");
    assert!(said.contains("Kernel panic - not syncing"), "{said}");
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn time_runs_out() {
    let spec = VmSpec { within: Duration::from_secs(1), ..small() };
    let began = Instant::now();
    let error = run(&spec, "sleep 1000").code.unwrap_err();
    assert!(matches!(error, VmError::Deadline { seconds: 1, .. }), "{error}");
    // Generous: the command would take minutes longer.
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn the_caller_may_stop_it() {
    let vm = small().boot(&sh("sleep 1000")).unwrap();
    assert_eq!(own_labs().len(), 1);
    let stop = AtomicBool::new(true);
    assert!(matches!(finish(vm, &stop).code, Err(VmError::Stopped)));
    // Dropped without waiting.
    drop(small().boot(&sh("sleep 1000")).unwrap());
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn a_reader_that_goes_away_ends_it() {
    struct Gone;
    impl std::io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let vm = small().boot(&sh("echo something; sleep 1000")).unwrap();
    let error = vm.finish(&mut Gone, &mut Vec::new(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, VmError::Output(_)), "{error}");
    assert_eq!(own_labs(), Vec::<String>::new());
}

fn invalid_specs_are_rejected_before_anything_is_created() {
    let said = |spec: VmSpec| Report::new(spec.boot(&sh("true")).map(drop).unwrap_err()).to_string();
    let cases = [
        (VmSpec { cpus: 0, ..small() }, "0 CPUs are not possible"),
        (VmSpec { cpus: 256, ..small() }, "use 1 to 255"),
        (VmSpec { cpus: 3, nodes: 2, ..small() }, "2 nodes are not possible with 3 CPUs"),
        (VmSpec { nodes: 0, ..small() }, "0 nodes are not possible"),
        (VmSpec { queues: 257, ..small() }, "257 queues are not possible"),
        (
            VmSpec { kernel: Some("/proc/self".into()), ..small() },
            "no kernel package is unpacked in /proc/self",
        ),
        (small().file(Path::new("/no/such")), "cannot read /no/such: No such file"),
        (VmSpec { share: Some("/no/such".into()), ..small() }, "cannot share /no/such: No such file"),
        (VmSpec { share: Some("/bin/sh".into()), ..small() }, "cannot share /bin/sh: not a directory"),
    ];
    for (spec, part) in cases {
        let said = said(spec);
        assert!(said.contains(part), "{said}");
        assert_eq!(own_labs(), Vec::<String>::new());
    }
}
