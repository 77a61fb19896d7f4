//! An agent that reads and writes every message with rasn, whose types are those of the RFCs' ASN.1 modules.

use rasn::ber::{decode, encode};
use rasn::types::{Integer, ObjectIdentifier, OctetString};
use rasn_smi::v2::{ObjectSyntax, SimpleSyntax};
use rasn_snmp::v2::{GetRequest as Get, Pdu, Pdus, Report, Response, VarBind, VarBindValue};
use rasn_snmp::v2c;
use rasn_snmp::v3::{HeaderData, Message, ScopedPdu, ScopedPduData, USMSecurityParameters};

use super::super::usm::{Keys, SALT_LEN, User};

/// As long as the one that the load assumes before it has asked, so that no discovery is needed.
const ENGINE_ID: [u8; 32] = [0; 32];

pub(super) fn oid(parts: &[u32]) -> ObjectIdentifier {
    ObjectIdentifier::new_unchecked(parts.to_vec().into())
}

pub(super) fn octets(bytes: &[u8]) -> OctetString {
    bytes.to_vec().into()
}

/// How an agent fails to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Error(u32),
    NoSuchObject,
    NoSuchInstance,
    EndOfMibView,
    Null,
    OtherName,
    TooFew,
    TooMany,
    OtherId,
    Report,
}

fn value(fault: Fault) -> VarBindValue {
    match fault {
        Fault::NoSuchObject => VarBindValue::NoSuchObject,
        Fault::NoSuchInstance => VarBindValue::NoSuchInstance,
        Fault::EndOfMibView => VarBindValue::EndOfMibView,
        Fault::Null => VarBindValue::Unspecified,
        _ => VarBindValue::Value(ObjectSyntax::Simple(SimpleSyntax::Integer(42.into()))),
    }
}

/// The name, or one in which row `row` ends.
fn named(name: &ObjectIdentifier, row: Option<u32>) -> ObjectIdentifier {
    let mut parts = name.to_vec();
    parts.extend(row);
    oid(&parts)
}

fn answer(request: &Pdus, fault: Fault) -> Pdus {
    let names =
        |bindings: &[VarBind]| bindings.iter().map(|binding| binding.name.clone()).collect::<Vec<_>>();
    let (id, names, rows): (i32, Vec<ObjectIdentifier>, Vec<Option<u32>>) = match request {
        Pdus::GetRequest(get) => (get.0.request_id, names(&get.0.variable_bindings), vec![None]),
        Pdus::GetNextRequest(next) => (next.0.request_id, names(&next.0.variable_bindings), vec![Some(1)]),
        Pdus::GetBulkRequest(bulk) => {
            assert_eq!(bulk.0.non_repeaters, 0);
            let rows = (1..=bulk.0.max_repetitions.min(4)).map(Some);
            (bulk.0.request_id, names(&bulk.0.variable_bindings), rows.collect())
        }
        other => panic!("not a request: {other:?}"),
    };
    let row = |row: &Option<u32>| {
        let row = if fault == Fault::EndOfMibView { None } else { *row };
        let of = move |name: &ObjectIdentifier| VarBind { name: named(name, row), value: value(fault) };
        names.iter().map(of).collect::<Vec<_>>()
    };
    let mut variable_bindings = rows.iter().flat_map(row).collect::<Vec<_>>();
    match fault {
        Fault::OtherName => variable_bindings[0].name = oid(&[0, 1]),
        // usmStatsNotInTimeWindows
        Fault::Report => variable_bindings[0].name = oid(&[1, 3, 6, 1, 6, 3, 15, 1, 1, 2, 0]),
        Fault::TooFew => variable_bindings.truncate(names.len() - 1),
        Fault::TooMany => {
            let more = variable_bindings[0].clone();
            variable_bindings.extend(std::iter::repeat_n(more, 2000));
        }
        _ => {}
    }
    let error_status = if let Fault::Error(error) = fault { error } else { 0 };
    let request_id = if fault == Fault::OtherId { id ^ 1 << 22 } else { id };
    let pdu = Pdu { request_id, error_status, error_index: error_status.min(1), variable_bindings };
    if fault == Fault::Report { Pdus::Report(Report(pdu)) } else { Pdus::Response(Response(pdu)) }
}

/// An agent's reply in version 2c.
pub(super) fn reply_v2c(community: &str, request: &[u8], fault: Fault) -> Vec<u8> {
    let message: v2c::Message<Pdus> = decode(request).unwrap();
    assert_eq!((&message.version, &message.community), (&1.into(), &octets(community.as_bytes())));
    encode(&v2c::Message { data: answer(&message.data, fault), ..message }).unwrap()
}

/// An agent's reply in version 3; checks everything of the request.
pub(super) fn reply_v3(user: &User, request: &[u8], fault: Fault) -> Vec<u8> {
    let keys = user.auth.as_ref().and_then(|auth| Keys::new(auth, &ENGINE_ID));
    let message: Message = decode(request).unwrap();
    let level = u8::from(keys.is_some()) + 2 * u8::from(keys.as_ref().is_some_and(Keys::is_private));
    let HeaderData { message_id, max_size, flags, security_model } = message.global_data.clone();
    assert_eq!((message.version.clone(), max_size, security_model), (3.into(), 1472.into(), 3.into()));
    assert_eq!(flags[..], [level | 4]);
    let usm: USMSecurityParameters = decode(&message.security_parameters).unwrap();
    assert_eq!(
        (&usm.authoritative_engine_id[..], &usm.user_name[..]),
        (&ENGINE_ID[..], user.name.as_bytes())
    );
    let clock = Integer::from(i32::MAX);
    assert_eq!((&usm.authoritative_engine_boots, &usm.authoritative_engine_time), (&clock, &clock));
    if let Some(keys) = &keys {
        assert_eq!(sign(keys, &message, &usm), request, "the code");
    }
    let clock = i32::MAX as u32;
    let salt = <[u8; SALT_LEN]>::try_from(&usm.privacy_parameters[..]);
    let scoped = match (&message.scoped_data, &keys, salt) {
        (ScopedPduData::CleartextPdu(scoped), ..) if level < 3 => scoped.clone(),
        (ScopedPduData::EncryptedPdu(data), Some(keys), Ok(salt)) => {
            let mut data = data.to_vec();
            keys.decrypt(clock, clock, salt, &mut data);
            decode(&data).unwrap()
        }
        (other, ..) => panic!("not at level {level}: {other:?}"),
    };
    assert_eq!((&scoped.engine_id[..], &scoped.name[..]), (&ENGINE_ID[..], &[][..]));
    let Pdus::GetRequest(Get(Pdu { request_id, .. })) = &scoped.data else { panic!("{scoped:?}") };
    assert_eq!(message_id, (*request_id).into());

    let scoped = ScopedPdu { data: answer(&scoped.data, fault), ..scoped };
    let scoped_data = match (&keys, salt) {
        (Some(keys), Ok(salt)) if level == 3 => {
            let mut data = encode(&scoped).unwrap();
            keys.encrypt(clock, clock, salt, &mut data);
            ScopedPduData::EncryptedPdu(data.into())
        }
        _ => ScopedPduData::CleartextPdu(scoped),
    };
    let global_data = HeaderData { flags: octets(&[level]), ..message.global_data.clone() };
    let reply = Message { global_data, scoped_data, ..message };
    match &keys {
        Some(keys) => sign(keys, &reply, &usm),
        None => encode(&reply).unwrap(),
    }
}

/// The message with the code that belongs to it.
fn sign(keys: &Keys, message: &Message, usm: &USMSecurityParameters) -> Vec<u8> {
    let with = |code: &[u8]| {
        let usm = USMSecurityParameters { authentication_parameters: octets(code), ..usm.clone() };
        let security_parameters = encode(&usm).unwrap().into();
        encode(&Message { security_parameters, ..message.clone() }).unwrap()
    };
    let blank = with(&vec![0; keys.code_len()]);
    with(&keys.code(&[&blank])[..keys.code_len()])
}
