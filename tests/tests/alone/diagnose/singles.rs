//! Causes whose scene is like no other.

use super::*;

/// Notes beside what is lost or limited: datagrams of a tunnel's size, and of a query's.
#[test]
fn large_datagrams_one_by_one() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let notes = |load: &'static [&'static str]| {
        let mut scene = Scene::new("bulk", &causes::REUSEPORT, true);
        scene.load(&Load::Udpath(load));
        let (_, json) = scene.diagnose();
        scene.end();
        let findings = json["findings"].as_array().unwrap().iter();
        let ids = findings.map(|found| found["id"].as_str().unwrap().to_owned());
        ids.filter(|id| id.starts_with("bulk-")).collect::<Vec<_>>()
    };
    let large = &["--rate", "15k", "--flows", "32", "--size", "1300"];
    let small = &["--rate", "15k", "--flows", "32", "--size", "64"];
    judged("notes about datagrams of a tunnel's size, and of a query's", || {
        assert_eq!(notes(large), ["bulk-received-singly", "bulk-sent-singly"]);
        assert_eq!(notes(small), Vec::<String>::new());
    });
}

/// A note as well: a busy-polling socket whose replies leave by CPU, until the queue pairs are set.
#[test]
fn replies_of_a_busy_poller() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("poller", &LinkSpec::with_queues(2)).polled();
    let (script, port) = (file("poller.py"), PORT.to_string());
    let mut server = bed.start("server", "python3", &[&script, &port]);
    server.says("ready");
    let target = bed.target(PORT);
    let address = target.split(':').next().unwrap();
    let mut client = bed.start("client", "python3", &[&script, &port, address]);
    client.says("ready");
    std::thread::sleep(Duration::from_millis(300));
    let scene = Scene { bed, server, load: Some(client), others: Vec::new(), accounting: None };
    let found = || {
        let (_, json) = scene.diagnose();
        let findings = json["findings"].as_array().unwrap().iter();
        let found = findings.filter(|found| found["id"] == "transmit-by-cpu");
        found.map(|found| found["remedies"][0]["changes"]["settings"].clone()).collect::<Vec<_>>()
    };
    let pairs = ["eth0:xps-rxqs/tx-0=0", "eth0:xps-rxqs/tx-1=1"];
    assert_eq!(found(), [serde_json::json!(pairs)]);
    for (queue, mask) in [("tx-0", 1), ("tx-1", 2)] {
        let set = format!("echo {mask} > /sys/class/net/eth0/queues/{queue}/xps_rxqs");
        scene.run("sh", &["-c", &set]);
    }
    assert_eq!(found(), Vec::<Value>::new());
    scene.end();
}

/// A note about CPUs that share transmit queues, until the settings that it recommends are applied.
#[test]
fn transmit_queues_that_cpus_share() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let state = tempfile::tempdir().unwrap();
    let mut scene = Scene::new("xps", &causes::REUSEPORT, true);
    scene.load(&Load::Udpath(&["--rate", "5k", "--flows", "32"]));
    let settings = || {
        let (_, json) = scene.diagnose();
        let findings = json["findings"].as_array().unwrap().iter();
        let found = findings.filter(|found| found["id"] == "no-xps");
        let settings =
            found.flat_map(|found| found["remedies"][0]["changes"]["settings"].as_array().unwrap().clone());
        settings.map(|setting| setting.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let own = settings();
    assert!(
        own.len() == 2 && own[0].starts_with("eth0:xps/tx-0=0") && own[1].starts_with("eth0:xps/tx-1=1"),
        "{own:?}"
    );
    let state = state.path().to_str().unwrap();
    scene.run(program().to_str().unwrap(), &["apply", "--state", state, "--set", &own[0], "--set", &own[1]]);
    assert_eq!(settings(), Vec::<String>::new());
    scene.end();
}
