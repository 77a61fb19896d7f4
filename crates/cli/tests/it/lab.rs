//! `udpath lab` from the command line. Needs root.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// A kept lab's name is unique on a machine, and tests of other checkouts may run at the same time.
struct Lab(String);

impl Lab {
    fn named(purpose: &str) -> Self {
        Self(format!("{purpose}-{}", std::process::id()))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // However the test ended; usually it is gone by now.
        let _ = udpath(&["down", &self.0]);
    }
}

fn udpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_udpath"))
        .arg("lab")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The stdout of a command that must succeed.
fn data(arguments: &[&str]) -> String {
    let output = udpath(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and stderr of a command that must fail, with nothing on stdout.
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = udpath(arguments);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_lab_is_made_used_shown_and_removed() {
    udpath_lab::needs_root!();
    let lab = Lab::named("cli");
    let name = lab.0.as_str();
    let table = data(&["up", name, "--queues", "3", "--machines", "a,b,c"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["LAB", "STATE", "PID", "MACHINE", "INTERFACE", "QUEUES", "IPV4", "IPV6", "PEER"]);
    assert_eq!(rows.len(), 7, "{table}");
    let pid = rows[1][2];
    assert_eq!(rows[1], [name, "kept", pid, "a", "eth0", "3", "10.0.0.1", "fd75:6470:6174::1", "b/eth0"]);
    // Every column starts at the same offset in every row.
    for column in 1..rows[0].len() {
        let starts = |line: &str, cell: &str| line.rfind(&format!("  {cell}"));
        let at = starts(table.lines().next().unwrap(), rows[0][column]);
        for (line, row) in table.lines().zip(&rows).filter(|(_, row)| row[3] != row[0]) {
            let place = at.unwrap() + 2;
            assert_eq!(&line[place..place + row[column].len()], row[column], "{table}");
        }
    }

    assert!(data(&["list"]).lines().filter(|line| line.starts_with(&format!("{name} "))).count() == 6);
    let json: serde_json::Value = udpath_rig::json(data(&["list", "--json"]));
    assert_eq!(json["schema"], "udpath.lab/1");
    let listed = json["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == name).unwrap();
    assert_eq!(listed["state"], "kept");
    assert_eq!(listed["pid"].to_string(), pid);
    assert_eq!(listed["machines"][1]["namespace"], format!("udpath-{pid}-{name}-b"));
    assert_eq!(listed["links"][0]["ends"][1]["ipv4"][0], "10.0.0.2");
    assert_eq!(listed["links"][0]["spec"]["queues"], 3);

    // The program's own exit code, output and signals.
    let inside = |machine: &str, command: &[&str]| {
        let machine = format!("{name}/{machine}");
        let mut arguments = vec!["exec", machine.as_str(), "--"];
        arguments.extend(command);
        udpath(&arguments)
    };
    assert_eq!(inside("b", &["sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(inside("b", &["ls", "/sys/class/net"]).stdout, b"eth0\neth1\nlo\n");
    let killed =
        std::os::unix::process::ExitStatusExt::signal(&inside("b", &["sh", "-c", "kill -9 $$"]).status);
    assert_eq!(killed, Some(9));
    let wrong = inside("b", &["/no/such/program"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(3));
    assert_eq!(
        said,
        "udpath: cannot run /no/such/program in machine b: No such file or directory (os error 2)\n"
    );
    assert_eq!(
        refusal(&["exec", &format!("{name}/d"), "--", "true"]),
        (3, format!("udpath: lab {name} has no machine \"d\"; it has a, b, c\n"))
    );

    // From inside, it would end itself halfway.
    let output = inside("b", &[env!("CARGO_BIN_EXE_udpath"), "lab", "down", name]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(said, "udpath: this process is inside machine b; take the lab down from outside\n");
    assert_eq!(inside("c", &["true"]).status.code(), Some(0));

    let (code, said) = refusal(&["up", name]);
    assert_eq!(code, 3);
    assert!(said.contains("exists already") && said.contains(&format!("udpath lab down {name}")), "{said}");
    assert_eq!(data(&["down", name]), "");
    let (code, said) = refusal(&["down", name]);
    assert_eq!(code, 3);
    assert!(said.contains(&format!("there is no lab \"{name}\"")), "{said}");
    assert!(!std::path::Path::new("/run/netns").join(format!("udpath-{pid}-{name}-a")).exists());
}

#[test]
fn down_stale_removes_the_labs_of_killed_builders() {
    udpath_lab::needs_root!();
    let lab = Lab::named("cli-killed");
    // Killed at different times while building, until something is left behind.
    let left = (0..200_u32).find_map(|moment| {
        let mut builder = Command::new(env!("CARGO_BIN_EXE_udpath"));
        builder.args(["lab", "up", &lab.0]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut builder = builder.process_group(0).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(500) * (moment % 50));
        builder.kill().unwrap();
        builder.wait().unwrap();
        let listed = data(&["list"]);
        let row = listed.lines().find(|line| line.starts_with(&format!("{} ", lab.0)))?;
        let left =
            row.contains(" stale ").then(|| format!("/run/netns/udpath-{}-{}-client", builder.id(), lab.0));
        if left.is_none() {
            // Another lab built at the same time may have swept it since it was listed.
            let _ = udpath(&["down", &lab.0]);
        }
        left.filter(|namespace| std::path::Path::new(namespace).exists())
    });
    let namespace = left.expect("no kill left anything behind");
    let removed = data(&["down", "--stale"]);
    // Another lab built at the same time may have swept it, or be about to.
    assert!(removed.is_empty() || removed.lines().any(|name| name == lab.0), "{removed}");
    let gone = || !std::path::Path::new(&namespace).exists();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !removed.lines().any(|name| name == lab.0) && !gone() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(gone(), "{namespace} is left; removed: {removed}");
    assert!(!data(&["list"]).contains(&lab.0));
}

#[test]
fn wrong_arguments_end_with_2_and_a_sentence() {
    let said = |arguments: &[&str]| {
        let (code, said) = refusal(arguments);
        assert_eq!(code, 2, "{arguments:?}: {said}");
        said
    };
    assert!(said(&["up", "Lab"]).contains("expected 1 to 32 of a-z"));
    assert!(said(&["up", "x", "--machines", "a/b"]).contains("expected 1 to 15 of a-z"));
    assert!(said(&["up", "x", "--machines", "a,a"]).contains("two machines are named \"a\""));
    assert!(said(&["up", "x", "--queues", "0"]).contains("invalid number of queues 0: expected 1 to 4096"));
    assert!(said(&["up", "x", "--queues", "5000"]).contains("expected 1 to 4096"));
    assert!(said(&["down"]).contains("--stale"));
    assert!(said(&["down", "x", "--all"]).contains("cannot be used with"));
    assert!(said(&["exec", "x/y"]).contains("CMD"));
}

#[test]
fn without_root_the_error_names_the_requirement() {
    let own = std::fs::File::open(env!("CARGO_BIN_EXE_udpath")).unwrap();
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own)));
    command.args(["lab", "up", "nobody"]).current_dir("/").uid(65_534).gid(65_534);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("run as root") && said.lines().count() == 1, "{said}");
}
