//! Floods, and how much comes back.

use super::*;

/// A flood from one network: 10 replies a second of each kind, and truncated ones, never more bytes than came in; a
/// client of that network is served over TCP all the same.
#[test]
fn a_flood_gets_less_than_it_sends_over_every_io() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-flood", 2));
    for io in IOS {
        let server = serve(&lab, &zone, io, &["--tcp", "--responses-per-second", "10"]);
        let [address, _] = addresses(&lab);
        let target = format!("{address}:53");
        let words = [
            "load",
            "dns",
            &target,
            "--name",
            "x.wild.example.org",
            "--rate",
            "4000",
            "-d",
            "1s",
            "--timeout",
            "200ms",
            "--json",
        ];
        // Most requests get no reply, which the load reports.
        let _ = run(&lab, "client", &program().display().to_string(), &words).finish();
        let said = dig(&lab, "kdig", address, &["www.example.org", "A", "+tcp"]);
        assert!(said.contains("192.0.2.80"), "{io}: {said}");
        let counts = end(server);
        let total = &counts["total"];
        let count = |name: &str| total[name].as_u64().unwrap_or_else(|| panic!("{name}: {total}"));
        assert!(count("received") > 1000, "{io}: {total}");
        assert!(count("answered_bytes") < count("received_bytes"), "{io}: {total}");
        // Every second one over the rate is dropped.
        let refused = total["dropped"]["refused"].as_u64().unwrap();
        assert!(refused > count("received") / 3, "{io}: {total}");
    }
    lab.down().unwrap();
}

/// What a forged source address gains, on the wire: docs/protocols/dns.md has these figures.
#[test]
fn a_flood_is_amplified_as_the_docs_say() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-factor", 2));
    zone.write(1, &format!("big TXT{}\n", format!(" \"{}\"", "t".repeat(200)).repeat(5)));
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocols/dns.md");
    let docs = fs::read_to_string(docs).unwrap();
    let kinds = [
        (
            "1,000 bytes of TXT records, EDNS",
            &["--name", "big.example.org", "--types", "TXT", "--edns", "100"][..],
        ),
        ("the same without EDNS", &["--name", "big.example.org", "--types", "TXT"]),
        ("a name that does not exist", &["--name", "www.example.org", "--missing", "100", "--edns", "100"]),
    ];
    for (kind, words) in kinds {
        let row = docs.lines().find_map(|line| line.strip_prefix(&format!("| {kind} |")));
        let row = row.unwrap_or_else(|| panic!("docs/protocols/dns.md has no row for {kind}"));
        let printed: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let mut measured = Vec::new();
        for limit in [&UNLIMITED[..], &["--responses-per-second", "5"], &[]] {
            let server = serve(&lab, &zone, "reuseport", limit);
            let [address, _] = addresses(&lab);
            let target = format!("{address}:53");
            let load =
                ["load", "dns", &target, "--rate", "10000", "-d", "1s", "--timeout", "200ms", "--json"];
            // With the limit, most requests get no reply, which the load reports.
            let loaded =
                run(&lab, "client", &program().display().to_string(), &[&load[..], words].concat()).finish();
            let result: Value =
                serde_json::from_str(&loaded.out).unwrap_or_else(|_| panic!("{}", loaded.err));
            let hint = result["warnings"].to_string().contains("the server limits its response rate");
            // With the default only a part of the requests gets no reply.
            assert!(limit.is_empty() || hint != (limit == UNLIMITED), "{kind}: {result}");
            let counts = end(server);
            let bytes = |name: &str| counts["total"][name].as_u64().unwrap() as f64;
            assert!(counts["total"]["received"].as_u64().unwrap() > 2000, "{kind}: {counts}");
            measured.push(bytes("answered_bytes") / bytes("received_bytes"));
            if limit.is_empty() {
                // A burst of 200, and 200 per second, of the longest replies; the others are not longer than their
                // queries.
                let whole = 200.0 * (1.0 + counts["seconds"].as_f64().unwrap());
                let most = whole * 1232.0 + bytes("received_bytes");
                assert!(bytes("answered_bytes") < most, "{kind}: {counts}");
                assert!(counts["total"]["dropped"]["refused"].as_u64().unwrap() > 0, "{kind}: {counts}");
            }
        }
        campaign::record(
            &format!("dns amplification, {kind}"),
            &format!(
                "{:.2} without a limit, {:.2} with 5 responses per second, {:.2} with 200",
                measured[0], measured[1], measured[2]
            ),
        );
        assert_eq!(printed.len(), 3, "{row}");
        // The default limits bytes per second: a slow machine's flood is smaller, and its factor higher, but never
        // above that of no limit; the bytes are asserted below.
        assert!(measured[2] >= printed[2] - 0.3 && measured[2] <= measured[0] + 0.01, "{kind}: {measured:?}");
        for (printed, measured) in printed.iter().zip(measured).take(2) {
            // Printed with one digit; a slow machine's flood is shorter, and its first replies weigh more.
            assert!(
                (printed - measured).abs() < 0.051 + 0.02 * printed,
                "{kind}: {measured}, printed as {printed}"
            );
        }
    }
    lab.down().unwrap();
}
