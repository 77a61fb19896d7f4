//! A socket that a busy program does not read beside one that it reads, and its twins under the same load: one that
//! reads both, and one that reads both too slowly.

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, program};

use super::{PORT, file, first_is, found_first, right, silent};

fn diagnosed(how: &str) -> (u32, Value) {
    let bed = Bed::new("unread", &LinkSpec::with_queues(1));
    let target = bed.target(PORT);
    let address = target.split(':').next().unwrap();
    let mut server = bed.start("server", "python3", &[&file("unread.py"), address, &PORT.to_string(), how]);
    server.says("ready");
    // Not all of them answer.
    let load = ["load", "echo", &*target, "--rate", "1k", "--flows", "16", "-d", "20s"];
    let load = bed.start("client", program(), &load);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "3s", "--json"]);
    let pid = server.pid();
    for one in [load, server] {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    (pid, udpath_rig::json(&ended.out))
}

#[test]
fn a_socket_that_nobody_reads_is_named_beside_one_that_is_read() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cause = "a socket that nobody reads";
    found_first(cause, || {
        let (pid, json) = diagnosed("unread");
        let wrong = first_is(&json, Some("socket-not-read"));
        if wrong.is_none() {
            says_which(pid, &json["findings"][0]);
        }
        wrong
    });
    silent(cause, || first_is(&diagnosed("both").1, None));
    let slow = || first_is(&diagnosed("slow").1, Some("reader-slow"));
    assert_eq!(right("a reader of two sockets that is too slow", slow), None);
}

/// Half of the flows or so are the unread one's: with 16, the odds that none is are one in 65,536.
#[test]
fn a_member_of_a_group_that_nobody_reads_is_named_with_its_group() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cause = "a member of a group that nobody reads";
    found_first(cause, || {
        let (_, json) = diagnosed("member");
        let wrong = first_is(&json, Some("socket-not-read"));
        if wrong.is_none() {
            let found = &json["findings"][0];
            let evidence = found["evidence"].as_str().unwrap();
            assert!(evidence.ends_with("; of the 1 other socket of its group, 1 is read"), "{evidence}");
            let advice = found["remedies"][0]["advice"].as_str().unwrap();
            assert!(advice.starts_with("read every socket of the group"), "{found:#}");
        }
        wrong
    });
    silent(cause, || first_is(&diagnosed("members").1, None));
}

fn says_which(pid: u32, found: &Value) {
    let evidence = found["evidence"].as_str().unwrap();
    assert!(
        evidence.contains(&format!("(python3, pid {pid})"))
            && evidence.ends_with(&format!("; 0.0.0.0:{PORT} of the same process got nothing")),
        "{evidence}"
    );
    assert!(found["remedies"][0]["advice"].as_str().unwrap().starts_with("read both sockets"), "{found:#}");
    assert_eq!(found["commands"], serde_json::json!([]), "no larger buffer, and no more readers");
}
