use std::net::SocketAddr;

use udpath_load::template::{Judgement, Protocol};
use udpath_protocols::ntp::{Header, Ntp, NtpConfig, NtpLoad, Query, Timestamp};
use udpath_serve::{Outcome, serve_once};

/// Datagrams to an NTP server: only a client's request is answered, with its origin and 48 bytes, never with more than
/// it has. The header survives decoding and encoding.
pub fn ntp_request(data: &[u8]) {
    if let Some(header) = Header::decode(data) {
        assert_eq!(header.encode(), data[..Header::LEN]);
    }
    let [peer, local] = [1000, 123].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
    let mut ntp = Ntp::new(NtpConfig { local: true, ..NtpConfig::default() });
    let (outcome, reply) = serve_once(&mut ntp, data, peer, local);
    match Query::decode(data) {
        Ok(query) => {
            assert_eq!((outcome, reply.len()), (Outcome::Reply, Header::LEN));
            assert!(reply.len() <= data.len());
            assert!(data[0] & 7 == 3 && (1..=4).contains(&query.version));
            let reply = Header::decode(&reply).expect("48 bytes");
            assert_eq!((reply.mode, reply.version), (4, query.version));
            assert_eq!((reply.origin, reply.poll), (query.transmit, query.poll));
            assert_eq!(data[40..48], query.transmit.0.to_be_bytes());
        }
        Err(_) => assert!(matches!(outcome, Outcome::Drop(_)) && reply.is_empty()),
    }
}

/// Replies to the load. The first 20 bytes give a run, a flow and a sequence number, the rest is the reply: if it is
/// valid, its origin is the transmit time of that request, and its sender a server.
pub fn ntp_reply(data: &[u8]) {
    let Some((run, rest)) = data.split_first_chunk() else { return };
    let Some((flow, rest)) = rest.split_first_chunk() else { return };
    let Some((seq, reply)) = rest.split_first_chunk() else { return };
    let flow = u32::from_be_bytes(*flow) % udpath_load::plan::MAX_FLOWS;
    let seq = u64::from_be_bytes(*seq) >> 24;
    let mut template = NtpLoad::new(u64::from_be_bytes(*run)).template();
    let mut request = [0xff; Header::LEN];
    if let Judgement::Valid { seq } = template.check(flow, reply) {
        template.write(flow, seq, &mut request);
        let (sent, got) = (Header::decode(&request), Header::decode(reply));
        assert_eq!(sent.map(|sent| sent.transmit), got.map(|got| got.origin));
        assert!(got.is_some_and(|got| got.mode == 4 && got.version == 4) && reply.len() == Header::LEN);
    }
    template.write(flow, seq, &mut request);
    let origin = Header::decode(&request).expect("48 bytes").transmit;
    let (receive, transmit) = (Timestamp(5), Timestamp(6));
    let good = Header { version: 4, mode: 4, stratum: 1, origin, receive, transmit, ..Header::default() };
    assert_eq!(template.check(flow, &good.encode()), Judgement::Valid { seq });
    let other = (flow + 1) % udpath_load::plan::MAX_FLOWS;
    assert_eq!(template.check(other, &good.encode()), Judgement::WrongFlow);
    // One damaged bit of what identifies it, selected by the input.
    let mut damaged = good.encode();
    let bit = usize::from(data[0]);
    let of = [0, 24, 25, 26, 27, 28, 29, 30, 31];
    damaged[of[bit / 8 % of.len()]] ^= 1 << (bit % 8);
    // The leap indicator may change to another valid one; otherwise only the number of another request passes.
    let judged = template.check(flow, &damaged);
    assert!(damaged[0] != good.encode()[0] || judged != Judgement::Valid { seq }, "bit {bit}");
}
