use std::sync::LazyLock;

use udpath_load::template::{Judgement, Protocol};
use udpath_protocols::dns::{DnsLoad, ENTRY, MAX_QUERY};
use udpath_protocols::{OptionSpec, Options};

/// Bytes of a header.
const HEADER: usize = 12;
/// Bytes of an OPT record without options.
const OPT: usize = 11;

/// Loads of one name, and of a hundred with EDNS; each with a quick look at replies, and with a walk of all records.
static LOADS: LazyLock<Vec<DnsLoad>> = LazyLock::new(|| {
    let many: &[(&str, &str)] = &[("name", "h{}.example.org"), ("names", "100"), ("edns", "100")];
    let verify: &[(&str, &str)] = &[("verify", "")];
    [&[][..], many].into_iter().flat_map(|names| [load(names), load(&[names, verify].concat())]).collect()
});

fn load(given: &[(&str, &str)]) -> DnsLoad {
    let mut options = Options::default();
    for (name, value) in given {
        let spec: Option<&OptionSpec> = ENTRY.load_options.iter().find(|spec| spec.name == *name);
        options.push(spec.expect("an option of the load"), value);
    }
    DnsLoad::from_options(5, &options).expect("valid options")
}

/// Replies to queries. The first 4 bytes give a flow and a sequence number, the rest is the reply: if it is valid, it
/// has the identifier and the question of that query, and says that it is a reply. Walking the records only rejects
/// more.
pub fn dns_reply(data: &[u8]) {
    let Some(([f0, f1, s0, s1], reply)) = data.split_first_chunk() else { return };
    let (flow, seq) = (u16::from_be_bytes([*f0, *f1]).into(), u16::from_be_bytes([*s0, *s1]).into());
    for pair in LOADS.chunks_exact(2) {
        let judged = [0, 1].map(|which| pair[which].template().check(flow, reply));
        assert!(judged[1] == judged[0] || judged[1] == Judgement::Corrupt, "{judged:?}");
        holds(&pair[0], flow, reply, judged[0]);
        intact_is_valid(&pair[1], flow, seq, data);
    }
}

/// What is not corrupt answers a query of the flow.
fn holds(load: &DnsLoad, flow: u32, reply: &[u8], judged: Judgement) {
    let (Judgement::Valid { seq } | Judgement::Refused { seq }) = judged else {
        return assert_eq!(judged, Judgement::Corrupt);
    };
    let query = query(load, flow, seq);
    assert_eq!(reply[..2], query[..2], "another identifier");
    assert_eq!(reply[2] & 0xf9, 0x81, "no reply to a standard query");
    let question = question(&query);
    if matches!(judged, Judgement::Valid { .. }) {
        assert!([0, 3].contains(&(reply[3] & 0x0f)), "an error");
        assert!(reply[HEADER..].starts_with(question), "another question");
    }
}

/// The query itself with the bit of a reply is valid; with a damaged bit, which the input selects, it is not.
fn intact_is_valid(load: &DnsLoad, flow: u32, seq: u64, data: &[u8]) {
    let query = query(load, flow, seq);
    let mut reply = [&query[..HEADER], question(&query)].concat();
    (reply[2], reply[HEADER - 1]) = (0x81, 0);
    let template = load.template();
    assert_eq!(template.check(flow, &reply), Judgement::Valid { seq });
    let [first, .., last] = data else { return };
    let at = usize::from(*first) % (reply.len() - 4);
    // Behind the flags and the code, which a server may choose.
    let at = if at < 2 { at } else { at + 2 };
    reply[at] ^= 1 << (last % 8);
    assert_ne!(template.check(flow, &reply), Judgement::Valid { seq }, "byte {at}");
}

fn query(load: &DnsLoad, flow: u32, seq: u64) -> Vec<u8> {
    let mut query = vec![0xff; MAX_QUERY];
    let len = load.template().write(flow, seq, &mut query);
    query.truncate(len);
    query
}

fn question(query: &[u8]) -> &[u8] {
    let opt = if query[HEADER - 1] == 1 { OPT } else { 0 };
    &query[HEADER..query.len() - opt]
}
