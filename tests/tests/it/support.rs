//! `udpath support` as its users run it. Needs root for the lab and for private mounts.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use udpath_rig::{Run, client_and_server, program};

fn json(args: &[&str]) -> Value {
    let ended = Run::new(args).finish();
    assert_eq!(ended.code(), Some(0), "{args:?}: {}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// All files of an archive as one text.
fn contents(archive: &Path) -> String {
    let told = Command::new("tar").args(["-xzOf", archive.to_str().unwrap()]).output().unwrap();
    assert!(told.status.success());
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn a_lab_is_captured_and_shown_elsewhere_without_its_addresses() {
    udpath_lab::needs_root!();
    let lab = client_and_server("support", 2);
    let server = lab.machine("server").unwrap();
    let own = lab.address_of("server", "client").unwrap().ipv4;
    let eth0 = server.towards("client").unwrap();
    let socket = server.run(|| std::net::UdpSocket::bind((own, 5353))).unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lab.tar.gz");
    let file = path.to_str().unwrap();
    let name = server.namespace().to_owned();
    let made = json(&["support", "-o", file, "--netns", &name, "-i", "0.3", "--json"]);
    assert_eq!(made["schema"], "udpath.support/1");
    assert_eq!(made["pictures"], serde_json::json!(["earlier", "now"]));
    let different = |manifest: &Value, kind: &str| {
        let rows = manifest["redacted"].as_array().unwrap();
        rows.iter().find(|row| row["kind"] == kind).unwrap()["different"].as_u64().unwrap()
    };
    assert!(different(&made, "address") >= 1 && different(&made, "link-address") >= 1, "{made:#}");
    let text = contents(&path);
    for secret in [own.to_string(), eth0.mac().to_string()] {
        assert!(!text.contains(&secret), "{secret}");
    }
    // The same path, from the archive.
    let (here, there) = (
        json(&["show", "5353", "--netns", &name, "--json"]),
        json(&["show", "5353", "--sysroot", file, "--json"]),
    );
    assert_eq!(here["interfaces"][0]["name"], there["interfaces"][0]["name"]);
    let bound = |map: &Value| (map["sockets"][0]["inode"].clone(), map["sockets"][0]["pids"].clone());
    assert_eq!(bound(&here), bound(&there));
    assert_ne!(here["sockets"][0]["local"], there["sockets"][0]["local"]);
    assert!(there["sockets"][0]["local"].as_str().unwrap().ends_with(":5353"));
    // Rates cover the capture's own interval, and the output says so if a different one was requested.
    let rates = Run::new(&["show", "--sysroot", file, "-i", "10", "--json"]).finish();
    let seconds = serde_json::from_str::<Value>(&rates.out).unwrap()["seconds"].as_f64().unwrap();
    assert!((0.3..10.0).contains(&seconds), "{seconds}");
    assert!(rates.err.contains("two snapshots are"), "{}", rates.err);
    // The mapping is shown to the user who made the archive.
    let again = folder.path().join("again");
    let pairs = Run::new(&["support", "-o", again.to_str().unwrap(), "--netns", &name, "--print-redactions"])
        .finish();
    assert_eq!(pairs.code(), Some(0), "{}", pairs.err);
    assert!(pairs.out.contains(&format!("IP addresses\t{own}\t")), "{}", pairs.out);
    // A directory works like an archive, also when repacked by hand.
    let unpacked = json(&["show", "5353", "--sysroot", again.to_str().unwrap(), "--json"]);
    assert_eq!(bound(&unpacked), bound(&here));
    let packed = folder.path().join("packed.tar.gz");
    let within = folder.path().to_str().unwrap();
    let tar = Command::new("tar").args(["-czf", packed.to_str().unwrap(), "-C", within, "again"]).status();
    assert!(tar.unwrap().success());
    let packed = json(&["show", "5353", "--sysroot", packed.to_str().unwrap(), "--json"]);
    assert_eq!(packed["sockets"], unpacked["sockets"]);
    drop(socket);
    lab.down().unwrap();
}

#[test]
fn unredacted_parts_are_announced_and_existing_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.tar.gz");
    let file = path.to_str().unwrap();
    let made = Run::new(&["support", "-o", file, "--no-redact"]).finish();
    assert_eq!((made.code(), made.out.trim_end()), (Some(0), file), "{}", made.err);
    assert!(made.err.contains("NOT REDACTED"), "{}", made.err);
    let again = Run::new(&["support", "-o", file]).finish();
    assert_eq!(again.code(), Some(2));
    assert!(again.err.contains("exists; choose another path"), "{}", again.err);
    let forced = Run::new(&["support", "-o", file, "--force"]).finish();
    assert_eq!(forced.code(), Some(0), "{}", forced.err);
    assert!(contents(&path).contains("\"redacted\": ["));
}

#[test]
fn invalid_archives_give_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let shell = |script: &str| {
        let done = Command::new("sh").args(["-ec", script]).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    shell("mkdir -p proc; echo x >proc/stat; ln -s /etc/passwd proc/version; tar -czf link.tar.gz proc");
    shell("tar -czPf out.tar.gz --transform='s,^,../,' proc/stat; echo no archive >text.tar.gz");
    shell("mkdir empty; tar -czf empty.tar.gz empty");
    for (name, told) in [
        ("link.tar.gz", "is neither a file nor a directory"),
        ("out.tar.gz", "points out of the archive"),
        ("text.tar.gz", "cannot read it"),
        ("empty.tar.gz", "contains neither proc nor sys"),
    ] {
        let ended = Run::new(&["show", "--sysroot", &at(name)]).finish();
        assert_eq!(ended.code(), Some(2), "{name}: {}", ended.err);
        assert!(ended.err.contains(told), "{name}: {}", ended.err);
        assert_eq!((ended.err.trim_end().lines().count(), ended.out.as_str()), (1, ""), "{}", ended.err);
    }
}

#[test]
fn a_captured_folder_shows_nothing_outside_and_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap().to_owned();
    let secret = "secret-of-the-reader";
    let script = format!(
        "echo {secret} >secret; mkdir -p capture/proc/net capture/proc/irq capture/sys/class; cd capture; \
         echo 'cpu  1 2 3' >proc/real; ln -s real proc/stat; \
         ln -s {at}/secret proc/softirqs; ln -s ../../secret proc/interrupts; ln -s {at} sys/class/net; \
         mkfifo proc/modules proc/net/softnet_stat"
    );
    let done = Command::new("sh").args(["-ec", &script]).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let capture = folder.path().join("capture");
    let shown = Run::new(&["show", "--json", "--sysroot", capture.to_str().unwrap()]).finish();
    assert_eq!(shown.code(), Some(0), "{}", shown.err);
    assert!(!shown.out.contains(secret) && !shown.err.contains(secret), "{}", shown.out);
    for (name, why) in [
        ("/proc/softirqs", "leads out of the folder"),
        ("/proc/interrupts", "leads out of the folder"),
        ("/proc/net/softnet_stat", "is a FIFO"),
    ] {
        let told = format!("{name} is");
        let line = shown.out.lines().find(|line| line.contains(&told) && line.contains(why));
        assert!(line.is_some(), "{name}: {}", shown.out);
    }
    // A symbolic link to a copy of it is not followed either.
    let script = format!("rm -r capture/*; mkdir -p other/proc; ln -s {at}/other capture/now");
    assert!(Command::new("sh").args(["-ec", &script]).current_dir(folder.path()).status().unwrap().success());
    let shown = Run::new(&["show", "--sysroot", capture.to_str().unwrap()]).finish();
    assert_eq!(shown.code(), Some(2), "{}", shown.out);
    assert!(shown.err.contains("contains neither proc nor sys"), "{}", shown.err);
}

#[test]
fn an_archive_of_too_much_is_refused_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, write: &dyn Fn(&mut tar::Builder<GzEncoder<File>>)| {
        let path = folder.path().join(name);
        let mut builder =
            tar::Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
        write(&mut builder);
        builder.into_inner().unwrap().finish().unwrap();
        path
    };
    let entry = |builder: &mut tar::Builder<GzEncoder<File>>, name: &str, bytes: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, std::io::repeat(b'0').take(bytes)).unwrap();
    };
    let many = write("many.tar.gz", &|builder| {
        (0..400_000).for_each(|number| entry(builder, &format!("now/proc/{number}/comm"), 0));
    });
    let large = write("large.tar.gz", &|builder| {
        (0..40).for_each(|number| entry(builder, &format!("now/proc/{number}/comm"), 10 << 20));
    });
    let one = write("one.tar.gz", &|builder| entry(builder, "now/proc/stat", 200 << 20));
    // Kibibytes of address space: 132 MiB beside the program itself, which is as large as its profile makes it.
    let space = (132 << 10) + std::fs::metadata(program()).unwrap().len() / 1024;
    for (path, told) in [(many, "files and directories"), (large, "MiB"), (one, "more bytes than any file")] {
        let script =
            format!("ulimit -v {space}; exec {} show --sysroot {}", program().display(), path.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let ended = Run::of(command, "show of an archive of too much").finish();
        assert_eq!(ended.code(), Some(2), "{}: {}", path.display(), ended.err);
        assert!(ended.err.contains(told), "{}: {}", path.display(), ended.err);
        assert_eq!(ended.err.trim_end().lines().count(), 1, "{}", ended.err);
    }
}

#[test]
fn a_full_disk_is_left_as_it_was() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    for target in ["full.tar.gz", "full"] {
        let script = format!(
            "mount -t tmpfs -o size=4k,nr_inodes=40 none {at}; {} support -o {at}/{target}; code=$?; ls -A {at}; exit $code",
            program().display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]);
        let ended = Run::of(command, "support on a full disk").finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        assert!(
            ended.err.contains("No space left") && ended.err.contains("nothing was left behind"),
            "{}",
            ended.err
        );
        assert_eq!(ended.out, "", "{target}");
    }
}

#[test]
fn an_unprivileged_capture_lists_the_missing_files() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    let path = folder.path().join("nobodys.tar.gz");
    let ended = Run::unprivileged(&copy, &["support", "-o", path.to_str().unwrap()]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.err.contains("missing: ") && ended.err.contains("not permitted"), "{}", ended.err);
    let shown = Run::new(&["show", "--sysroot", path.to_str().unwrap()]).finish();
    // Whether there are findings depends on the machine.
    assert!(matches!(shown.code(), Some(0 | 1)), "{}", shown.err);
    assert!(shown.out.contains("not permitted"), "{}", shown.out);
}
