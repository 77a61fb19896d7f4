//! The load: requests in turn, and replies checked as a manager checks them.
//!
//! ```text
//! request-id, msgID   31    30   29     22 21                  0
//!                    | 0  | 1  | tag 8    | seq 22              |     always four bytes
//! ```
//! The tag is a hash of run and flow. The lower bits of `seq` also choose the question, so a reply names what it
//! answers.

use std::sync::Arc;
use std::time::Duration;

use udpath_load::plan::Plan;
use udpath_load::result::Kind;
use udpath_load::template::{InKernel, Judgement, Prepared, Protocol, Template};

use super::answers::Answers;
use super::ber::{Reader, tag};
use super::discovery::discover;
use super::engine::AgentEngine;
use super::in_kernel::{self, SEQ_BITS};
use super::message::{Level, Message, NotAuthentic, Sender};
use super::options::{Asker, SnmpConfig};
use super::pdu::{Composed, Pdu, Question, REPORT, RESPONSE, Verdict};
use super::usm::{SALT_LEN, User};
use super::{MAX_MESSAGE, OIDS};
use crate::OptionError;

const TAG_BITS: u32 = 8;
/// Set in every id, and the bit above it is not: each takes four bytes.
const FOUR_BYTES: u32 = 1 << (SEQ_BITS + TAG_BITS);

/// Number of version 2c in a message (RFC 1901).
const VERSION_2C: i32 = 1;

/// SNMP for a load.
#[derive(Debug, Clone)]
pub struct SnmpLoad {
    shared: Arc<Shared>,
}

/// What all templates of a run share.
#[derive(Debug, Clone)]
struct Shared {
    run: u64,
    questions: Vec<(Question, Composed)>,
    version: Version,
    /// Length of the longest request.
    longest: usize,
}

#[derive(Debug, Clone)]
enum Version {
    /// The questions are composed with their envelope.
    V2c { community: String },
    /// The questions are composed without. Engines by target: that of flow `i` is number `i mod n`.
    V3 { user: User, engines: Vec<AgentEngine> },
}

impl SnmpLoad {
    /// Requests of run `run`. Give each run its own number: most replies to an earlier run then count as of another
    /// flow, not as valid. In version 3 the agents' engines are learned by [`Protocol::prepare`].
    ///
    /// # Errors
    /// A request longer than a message may be.
    pub fn new(run: u64, config: SnmpConfig) -> Result<Self, OptionError> {
        let SnmpConfig { asker, questions } = config;
        let version = match asker {
            Asker::Community(community) => Version::V2c { community },
            Asker::User(user) => Version::V3 { engines: vec![AgentEngine::longest(&user)], user },
        };
        let mut shared = Shared { run, questions: Vec::new(), version, longest: 0 };
        for question in questions {
            let added = shared.add(question);
            added.ok_or_else(|| OptionError::Invalid {
                option: OIDS.name,
                value: format!("request {}", shared.questions.len() + 1),
                reason: format!("it is longer than the {MAX_MESSAGE} bytes of a message: ask for fewer OIDs"),
            })?;
        }
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Shared {
    /// Composes a question; none if its request is too long.
    fn add(&mut self, question: Question) -> Option<()> {
        let composed = question.compose(|writer| {
            if let Version::V2c { community } = &self.version {
                writer.element(tag::OCTETS, community.as_bytes());
                writer.int(VERSION_2C as u32);
                writer.wrap(tag::SEQUENCE, 0);
            }
        })?;
        let len = self.write(0, 0, &composed, &mut [0; MAX_MESSAGE])?;
        self.longest = self.longest.max(len);
        self.questions.push((question, composed));
        Some(())
    }

    fn id(&self, flow: u32, seq: u64) -> u32 {
        FOUR_BYTES | self.tag(flow) << SEQ_BITS | carried(seq) as u32
    }

    /// What distinguishes the ids of this run and flow from those of most others.
    fn tag(&self, flow: u32) -> u32 {
        (mix(mix(self.run) ^ u64::from(flow)) >> (u64::BITS - TAG_BITS)) as u32
    }

    /// The question of `seq`.
    fn question(&self, seq: u64) -> Option<&(Question, Composed)> {
        let count = self.questions.len() as u64;
        self.questions.get(usize::try_from(carried(seq).checked_rem(count)?).ok()?)
    }

    /// Writes a request; returns its length, none if there is no room.
    #[inline]
    fn write(&self, flow: u32, seq: u64, question: &Composed, request: &mut [u8]) -> Option<usize> {
        let id = self.id(flow, seq);
        match &self.version {
            Version::V2c { .. } => question.write(id, request),
            Version::V3 { user, engines } => {
                let sender = sender(user, engines, flow)?;
                sender.write(question, id, sender.engine.time(), self.salt(flow, seq), request)
            }
        }
    }

    /// Different for each request of a run, as RFC 3826, 3.1.2.1 wants it.
    fn salt(&self, flow: u32, seq: u64) -> [u8; SALT_LEN] {
        (mix(self.run) ^ u64::from(flow) << 40 ^ seq).to_be_bytes()
    }

    /// None: not a reply to a request of ours.
    #[inline]
    fn check(&self, flow: u32, reply: &[u8], said: &Answers) -> Option<Judgement> {
        match &self.version {
            Version::V2c { community } => {
                let mut datagram = Reader::new(reply);
                let mut message = datagram.within(tag::SEQUENCE)?;
                datagram.end()?;
                let ours =
                    message.int()? == VERSION_2C && message.expect(tag::OCTETS)? == community.as_bytes();
                let pdu = Pdu::read(message).filter(|pdu| ours && pdu.tag == RESPONSE)?;
                match self.seq_of(flow, u32::try_from(pdu.request_id).ok()?)? {
                    None => Some(Judgement::WrongFlow),
                    Some(seq) => self.judge(seq, &pdu, said),
                }
            }
            Version::V3 { user, engines } => self.check_v3(&sender(user, engines, flow)?, flow, reply, said),
        }
    }

    fn check_v3(&self, sender: &Sender<'_>, flow: u32, reply: &[u8], said: &Answers) -> Option<Judgement> {
        let message = Message::read(reply)?;
        let Some(seq) = self.seq_of(flow, message.id)? else { return Some(Judgement::WrongFlow) };
        let mut plain = [0; MAX_MESSAGE];
        let pdu = match message.open(sender.engine.keys(), &mut plain) {
            Ok(pdu) => pdu?,
            Err(NotAuthentic) => return None,
        };
        match pdu.tag {
            // What an agent cannot authenticate it reports without a code.
            REPORT if message.is_plain() || message.engine_id == sender.engine.id() => {
                said.refused(&pdu);
                Some(Judgement::Refused { seq })
            }
            RESPONSE if message.answers(sender) && u32::try_from(pdu.request_id) == Ok(message.id) => {
                self.judge(seq, &pdu, said)
            }
            _ => None,
        }
    }

    /// The bits of the seq in an id. None within: of another run or flow. None: not an id of ours.
    fn seq_of(&self, flow: u32, id: u32) -> Option<Option<u64>> {
        let (head, seq) = (id >> SEQ_BITS, u64::from(id) & carried(u64::MAX));
        let tag = head & ((1 << TAG_BITS) - 1);
        (head >> TAG_BITS == 1).then_some((tag == self.tag(flow)).then_some(seq))
    }

    fn judge(&self, seq: u64, answer: &Pdu<'_>, said: &Answers) -> Option<Judgement> {
        match self.question(seq)?.0.judge(answer) {
            Verdict::Answered => {
                said.answered();
                Some(Judgement::Valid { seq })
            }
            Verdict::Refused => {
                said.refused(answer);
                Some(Judgement::Refused { seq })
            }
            Verdict::Wrong => None,
        }
    }
}

/// Who sends on this flow, to which engine.
fn sender<'a>(user: &'a User, engines: &'a [AgentEngine], flow: u32) -> Option<Sender<'a>> {
    let engine = engines.get((flow as usize).checked_rem(engines.len())?)?;
    Some(Sender { user: user.name.as_bytes(), engine, level: Level::Full })
}

/// The bits of a seq that an id carries.
fn carried(seq: u64) -> u64 {
    seq & ((1 << SEQ_BITS) - 1)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Protocol for SnmpLoad {
    fn name(&self) -> &'static str {
        "snmp"
    }

    fn min_size(&self) -> usize {
        self.shared.longest
    }

    fn max_size(&self) -> usize {
        MAX_MESSAGE
    }

    fn one_size(&self) -> bool {
        false
    }

    fn ids(&self) -> u64 {
        1 << SEQ_BITS
    }

    fn in_kernel(&self) -> Option<InKernel> {
        let prebuilt = match &self.shared.version {
            Version::V2c { community } => in_kernel::version_2c(community)?,
            Version::V3 { .. } => in_kernel::version_3(),
        };
        Some(InKernel::Prebuilt(prebuilt))
    }

    fn prepare(&self, plan: &Plan, timeout: Duration) -> Prepared {
        let (Version::V3 { user, .. }, Some((_, question))) =
            (&self.shared.version, self.shared.questions.first())
        else {
            return Ok(None);
        };
        let source = plan.sources.first().copied();
        let engines = plan.targets.iter().map(|target| discover(*target, source, user, question, timeout));
        let version = Version::V3 { engines: engines.collect::<Result<_, _>>()?, user: user.clone() };
        Ok(Some(Box::new(Self { shared: Arc::new(Shared { version, ..Shared::clone(&self.shared) }) })))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(SnmpTemplate { shared: Arc::clone(&self.shared), said: Answers::default() })
    }
}

/// Writes requests and judges replies.
#[derive(Debug, Clone)]
pub struct SnmpTemplate {
    shared: Arc<Shared>,
    said: Answers,
}

impl Template for SnmpTemplate {
    fn name(&self) -> &'static str {
        "snmp"
    }

    fn min_size(&self) -> usize {
        self.shared.longest
    }

    fn max_reply(&self, _size: usize) -> usize {
        MAX_MESSAGE
    }

    fn seq_bits(&self) -> u32 {
        SEQ_BITS
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let question = self.shared.question(seq);
        // Both exist, and fit: there is a question, and `request` has room for the longest one.
        question.and_then(|(_, composed)| self.shared.write(flow, seq, composed, request)).unwrap_or(0)
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        self.shared.check(flow, reply, &self.said).unwrap_or(Judgement::Corrupt)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.said.kinds()
    }
}
