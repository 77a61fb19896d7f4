use udpath_load::template::{Judgement, Protocol};
use udpath_protocols::echo::EchoLoad;
use udpath_protocols::sink::{QUESTION, Report, SinkLoad};

/// Largest payload of a UDP datagram, bytes.
const LARGEST: usize = 65_507;

/// Replies to echo requests. The first 20 bytes give a run, a flow and a sequence number, the rest is the reply: it is
/// valid if and only if it equals a request of that run and flow byte for byte; any damage to a valid one is detected.
pub fn echo_reply(data: &[u8]) {
    let Some((run, rest)) = data.split_first_chunk() else { return };
    let Some((flow, rest)) = rest.split_first_chunk() else { return };
    let Some((seq, reply)) = rest.split_first_chunk() else { return };
    let flow = u32::from_be_bytes(*flow);
    let mut template = EchoLoad::new(u64::from_be_bytes(*run)).template();
    let reply = &reply[..reply.len().min(LARGEST)];
    let mut request = vec![0; reply.len()];
    match template.check(flow, reply) {
        Judgement::Valid { seq } => {
            template.write(flow, seq, &mut request);
            assert_eq!(request, reply, "valid, and not what was sent");
        }
        Judgement::WrongFlow => {
            let named = u32::from_be_bytes(reply[2..6].try_into().expect("four bytes"));
            assert_ne!(named, flow);
            assert!(matches!(template.check(named, reply), Judgement::Valid { .. }));
        }
        _ => {}
    }
    if request.len() < template.min_size() {
        return;
    }
    let seq = u64::from_be_bytes(*seq);
    template.write(flow, seq, &mut request);
    assert_eq!(template.check(flow, &request), Judgement::Valid { seq });
    assert_eq!(template.check(!flow, &request), Judgement::WrongFlow);
    // One damaged byte; the input selects which one, and how.
    let at = usize::from(reply[0]) * request.len() / 256;
    request[at] ^= reply[1].max(1);
    assert_eq!(template.check(flow, &request), Judgement::Corrupt, "byte {at}");
}

/// Reports of a sink, and other datagrams.
pub fn sink_report(data: &[u8]) {
    match Report::decode(data) {
        Some(report) => assert_eq!(report.encode(), data),
        None => assert!(data.len() != Report::LEN || !data.starts_with(b"udpath.sink/2 ==")),
    }
    if let Some((numbers, _)) = data.split_first_chunk::<32>() {
        let number = |at: usize| u64::from_be_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        let report =
            Report { datagrams: number(0), bytes: number(8), stream_bytes: number(16), cpu_ns: number(24) };
        assert_eq!(Report::decode(&report.encode()), Some(report));
    }
    // No datagram that the load sends to a sink is a query, otherwise it would not be counted.
    if let [size, flow, rest @ ..] = data {
        let mut datagram = rest.to_vec();
        datagram.resize(1 + usize::from(*size), 0);
        SinkLoad.template().write(u32::from(*flow), rest.len() as u64, &mut datagram);
        assert_ne!(datagram, QUESTION);
    }
}
