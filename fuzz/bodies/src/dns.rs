use std::net::SocketAddr;
use std::path::Path;
use std::sync::LazyLock;

use udpath_protocols::dns::{Dns, DnsConfig};
use udpath_serve::{Outcome, serve_once};

/// The server, loaded once: names of every kind, and a zone that is signed.
static DNS: LazyLock<Dns> = LazyLock::new(|| {
    let zone = |file: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let zones = ["src/dns.zone", "src/dns-signed.zone"].map(zone).to_vec();
    Dns::load(&DnsConfig { zones, strict: true, responses_per_second: None, ..DnsConfig::default() })
        .expect("the zones are right")
});

/// Datagrams to a DNS server: a reply has the identifier of its query and the response bit, repeats the question if it
/// has one, and is no longer than the client takes: 512 bytes, or with EDNS at most 1232.
pub fn dns_query(data: &[u8]) {
    let [peer, local] = [1000, 53].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
    let (outcome, reply) = serve_once(&mut DNS.clone(), data, peer, local);
    let Outcome::Reply = outcome else {
        // Only what is no query gets nothing.
        return assert!(data.len() < 12 || data[2] & 0x80 != 0, "{outcome:?}");
    };
    // A record in the additional section may be OPT, which says how much the client takes.
    let most = if data[10..12] == [0, 0] { 512 } else { 1232 };
    assert!((12..=most).contains(&reply.len()), "{} bytes", reply.len());
    assert_eq!((&reply[..2], reply[2] & 0x80), (&data[..2], 0x80));
    match reply[4..6] {
        [0, 0] => assert_eq!(reply.len(), 12),
        _ => {
            let end = 12 + data[12..].iter().position(|byte| *byte == 0).map_or(0, |zero| zero + 5);
            // A label may contain a zero: then the question goes on behind it.
            let end = end.min(reply.len());
            assert_eq!(reply[12..end], data[12..end]);
        }
    }
}
