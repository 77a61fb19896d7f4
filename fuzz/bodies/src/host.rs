//! Captured machines: the kernel's answers as JSON, and lists from procfs.

use udpath_host::Absence;
use udpath_host::packet_sockets;
use udpath_host::source::Question;

use crate::presentable;

/// A captured answer: a valid one round-trips, an invalid one is reported. The first byte selects the query.
pub fn host_answers(data: &[u8]) {
    let Some((which, text)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let name = || "eth0".to_owned();
    let questions = [
        Question::Time,
        Question::Links,
        Question::Qdiscs,
        Question::Queues,
        Question::Napis,
        Question::QueueCounters,
        Question::XdpFeatures,
        Question::Driver(name()),
        Question::PermanentAddress(name()),
        Question::Channels(name()),
        Question::Rings(name()),
        Question::Coalescing(name()),
        Question::Features(name()),
        Question::Rss(name()),
        Question::HashFields(name()),
        Question::FlowRules(name()),
        Question::DriverCounters(name()),
        Question::UdpSockets,
        Question::NftChains,
        Question::AuditStatus,
        Question::NetfilterHooks,
        Question::TimeStampingOffer(name()),
        Question::TimeStamping(name()),
        Question::ReuseportGroups,
    ];
    let question = &questions[usize::from(*which) % questions.len()];
    let answer = question.decode(text, "input");
    if let Err(Absence::NotUnderstood(why)) = &answer
        && why.starts_with("input: ")
    {
        presentable(why, text.len());
        return;
    }
    let written = Question::encode(&answer).expect("an answer has a text");
    assert_eq!(question.decode(&written, "input"), answer);
}

/// `/proc/net/packet` and `/proc/net/ptype`.
pub fn host_packet_sockets(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Err(error) = packet_sockets::sockets(text) {
        presentable(&error, data.len());
    }
    match packet_sockets::handlers(text) {
        Ok(handlers) => assert!(handlers.len() <= text.lines().count()),
        Err(error) => presentable(&error, data.len()),
    }
}
