//! Requests with the address of another machine of the link: where a reply proves who has asked, or shows what only the
//! client may read, it does not go to whoever sent the request, without an option that says so.

use udpath_lab::Lab;

use super::*;

/// The machine of the link whose address the client has taken, and its link address as the server's kernel knows it.
const VICTIM: &str = "198.18.0.100";
const ITS_LINK: &str = "02:00:00:00:00:99";

fn ip(lab: &Lab, machine: &str, words: &[&str]) {
    let mut ip = lab.machine(machine).unwrap().command("ip");
    let output = ip.args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn dns_and_radius_give_nobody_the_reply_to_a_request_of_another() {
    udpath_lab::needs_root!();
    let zone = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(zone.path(), "$ORIGIN example.org.\n@ 60 SOA . . 1 1 1 1 1\n@ 60 A 192.0.2.1\n").unwrap();
    let zone = zone.path().to_str().unwrap();
    for (protocol, options, load, stolen) in [
        // An echo has no secret: its replies go back the way that the requests came.
        ("echo", &[][..], &[][..], true),
        ("dns", &["--zone", zone, "--responses-per-second", "off"], &["--name", "example.org"], false),
        ("radius", &[], &[], false),
    ] {
        let lab = client_and_server("xdp-forged", 1);
        ip(&lab, "client", &["address", "add", VICTIM, "dev", "lo"]);
        ip(&lab, "server", &["route", "add", "198.18.0.0/24", "dev", "eth0"]);
        ip(
            &lab,
            "server",
            &["neigh", "replace", VICTIM, "lladdr", ITS_LINK, "nud", "permanent", "dev", "eth0"],
        );
        // By default, only this host may ask.
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (clients, users) = (
            file("clients", "0.0.0.0/0 testing123\n"),
            file("users", "bob Cleartext-Password := \"hello\"\n"),
        );
        let clients = ["--clients", clients.as_str(), "--users", users.as_str()];
        let clients = if protocol == "radius" { &clients[..] } else { &[] };
        let server =
            inside::serve(&lab, "xdp", &[&[protocol, "--bind", "0.0.0.0:7000"], options, clients].concat());
        let target = targets(&lab)[0].to_string();
        let answered = |source: &[&str]| {
            let words = [
                "load",
                protocol,
                &target,
                "--flows",
                "2",
                "--rate",
                "100",
                "-d",
                "500ms",
                "--timeout",
                "500ms",
                "--json",
            ];
            let ended = udpath(&lab, "client", &[&words[..], load, source].concat()).finish();
            let result: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
            result["counts"]["received"].as_u64().unwrap()
        };
        assert!(answered(&[]) > 10, "{protocol}: the client's own requests");
        assert_eq!(answered(&["--source", VICTIM]) > 10, stolen, "{protocol}: those of the victim");
        let end = end(server);
        assert!(end["total"]["answered"].as_u64().unwrap() > 20, "{protocol}: {end}");
        lab.down().unwrap();
    }
}
