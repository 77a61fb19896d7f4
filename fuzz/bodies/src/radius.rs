use std::net::SocketAddr;
use std::sync::LazyLock;

use udpath_load::template::{Judgement, Protocol};
use udpath_protocols::radius::{
    Clients, Code, Kind, LoadConfig, MAX_LEN, Packet, Radius, RadiusFiles, RadiusLoad, RadiusState, Secret,
    Users, Writer,
};
use udpath_serve::{Outcome, serve_once};

use crate::presentable;

/// That of the clients of a server without files, and of a load without options.
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::new(b"testing123"));
const ZERO: [u8; 16] = [0; 16];

/// Datagrams to a RADIUS server, as they are and signed: without a signature there is no reply; a reply is signed, has
/// the Proxy-States of its request, and is not longer than it unless the user was let in.
pub fn radius_request(data: &[u8]) {
    assert!(asked(data).is_none_or(|_| Packet::decode(data).is_ok_and(|packet| is_signed(&packet))));
    let Ok(packet) = Packet::decode(data) else { return };
    let mut signed = packet.bytes().to_vec();
    let accounting = packet.code() == Code::ACCOUNTING_REQUEST;
    let authenticator = if accounting { ZERO } else { *packet.authenticator() };
    let places = packet.attributes().filter(|attribute| attribute.kind == Kind::MESSAGE_AUTHENTICATOR);
    if let Some(at) = places.map(|attribute| attribute.at).next() {
        // Not if it is too short.
        let _ = SECRET.sign(&mut signed, &authenticator, at);
    }
    if accounting {
        SECRET.authenticate(&mut signed, &ZERO).expect("a header");
    }
    let Some(reply) = asked(&signed) else { return };
    let (request, reply) =
        (Packet::decode(&signed).expect("as before"), Packet::decode(&reply).expect("a packet"));
    assert!(SECRET.has_authenticated(reply.bytes(), request.authenticator()));
    assert_eq!(reply.identifier(), request.identifier());
    let proxies = |packet: &Packet<'_>| {
        let states = packet.attributes().filter(|attribute| attribute.kind == Kind::PROXY_STATE);
        states.map(|attribute| attribute.value.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(proxies(&reply), proxies(&request));
    match (request.code(), reply.code()) {
        (Code::ACCESS_REQUEST, Code::ACCESS_ACCEPT) => assert!(reply.bytes().len() <= MAX_LEN),
        (Code::ACCESS_REQUEST, Code::ACCESS_REJECT)
        | (Code::ACCOUNTING_REQUEST, Code::ACCOUNTING_RESPONSE)
        | (Code::STATUS_SERVER, Code::ACCESS_ACCEPT) => assert!(reply.bytes().len() <= data.len()),
        other => panic!("{other:?}"),
    }
}

/// The reply of a server without files to a client on its host.
fn asked(datagram: &[u8]) -> Option<Vec<u8>> {
    static RADIUS: LazyLock<Radius> =
        LazyLock::new(|| Radius::new(&RadiusState::open(RadiusFiles::default()).expect("no files to read")));
    let [peer, local] = [1000, 1812].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (outcome, reply) = serve_once(&mut RADIUS.clone(), datagram, peer, local);
    assert!(matches!(outcome, Outcome::Reply | Outcome::Drop(_)));
    (outcome == Outcome::Reply).then_some(reply)
}

fn is_signed(request: &Packet<'_>) -> bool {
    if request.code() == Code::ACCOUNTING_REQUEST {
        return SECRET.has_authenticated(request.bytes(), &ZERO);
    }
    request.attributes().any(|attribute| {
        attribute.kind == Kind::MESSAGE_AUTHENTICATOR
            && SECRET.has_signed(request.bytes(), request.authenticator(), attribute.at)
    })
}

/// Replies to the load. The first 20 bytes give a run, a flow and a sequence number, the rest is the reply: it is valid
/// only if the server's secret has signed it for a request of this run and flow.
pub fn radius_reply(data: &[u8]) {
    let Some((run, rest)) = data.split_first_chunk() else { return };
    let Some((flow, rest)) = rest.split_first_chunk() else { return };
    let Some((seq, reply)) = rest.split_first_chunk() else { return };
    let flow = u32::from_be_bytes(*flow) % udpath_load::plan::MAX_FLOWS;
    let seq = u64::from_be_bytes(*seq);
    let mut template = RadiusLoad::new(u64::from_be_bytes(*run), LoadConfig::default()).template();
    let mut buffer = [0xff; 512];
    if let Judgement::Valid { seq } | Judgement::Refused { seq } = template.check(flow, reply) {
        let len = template.write(flow, seq, &mut buffer);
        let sent = Packet::decode(&buffer[..len]).expect("a packet");
        assert!(SECRET.has_authenticated(reply, sent.authenticator()));
    }
    let len = template.write(flow, seq, &mut buffer);
    let sent = Packet::decode(&buffer[..len]).expect("a packet");
    let mut good = [0; 512];
    let mut writer =
        Writer::new(&mut good, Code::ACCESS_ACCEPT, sent.identifier(), sent.authenticator()).expect("room");
    for state in sent.attributes().filter(|attribute| attribute.kind == Kind::PROXY_STATE) {
        writer.attribute(state.kind, state.value).expect("room");
    }
    let good = writer.finish().expect("room");
    SECRET.authenticate(good, sent.authenticator()).expect("a header");
    assert_eq!(template.check(flow, good), Judgement::Valid { seq });
    assert_eq!(template.check((flow + 1) % udpath_load::plan::MAX_FLOWS, good), Judgement::WrongFlow);
    // One damaged bit, selected by the input.
    let bit = (usize::from(data[0]) << 8 | usize::from(data[1])) % (8 * good.len());
    good[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(template.check(flow, good), Judgement::Corrupt, "bit {bit}");
}

/// The files of clients and users: errors are printable, and what was read can be looked up.
pub fn radius_files(data: &[u8]) {
    match Clients::parse(data) {
        Ok(clients) => {
            for address in [[10, 0, 0, 1], [192, 0, 2, 1], [255; 4]] {
                let _ = clients.find(address.into());
            }
        }
        Err(error) => presentable(&error, data.len()),
    }
    match Users::parse(data) {
        Ok(users) => {
            for user in users.all() {
                assert_eq!(users.find(&user.name).map(|found| &found.name), Some(&user.name));
            }
        }
        Err(error) => presentable(&error, data.len()),
    }
}
