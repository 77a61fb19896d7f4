//! The kernel of one network namespace, asked and told through sockets.
//!
//! ```text
//!  Question --> netlink: ethtool, netdev, route      first
//!          |--> netlink: sock_diag, nftables, audit  sockets, chains of rules, whether system calls are audited
//!          \--> ioctl: what netlink lacks            driver's name and counters, flow rules; RSS and time stamping of
//!                                                   older kernels
//! ```
//! The sockets belong to the namespace of the thread that opened them, whatever thread uses them. Reading needs no
//! right. Setting takes CAP_NET_ADMIN over the namespace, and reads nothing back: who sets, compares.

mod bitset;
mod ethtool;
mod flow_rules;
mod hooks;
mod ioctl;
mod netdev;
pub(crate) mod netfilter;
mod route;
mod set;
mod sockets;
mod sys;
mod time_stamping;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use netlink_sys::protocols::{
    NETLINK_AUDIT, NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub use crate::netlink::Refused;
use crate::netlink::numbers::{CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY};
use crate::netlink::{Answers, Attributes, Netlink, Writer};
use crate::source::{Answer, Question};
use crate::{Absence, Fact, Provenance};
pub use set::{NapiChange, RssChange};

/// The generic netlink family that knows the others, `GENL_ID_CTRL`.
const CONTROL: u16 = 16;
/// Bytes of a generic netlink header: command, version, two unused.
const GENERIC_HEADER: usize = 4;

/// Sockets to the kernel, of one network namespace.
pub struct Kernel {
    route: Result<Netlink, Refused>,
    generic: Result<Netlink, Refused>,
    diag: Result<Netlink, Refused>,
    netfilter: Result<Netlink, Refused>,
    audit: Result<Netlink, Refused>,
    control: Result<OwnedFd, Refused>,
    families: BTreeMap<&'static str, u16>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("families", &self.families).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Opens the sockets, in the calling thread's network namespace. One that cannot be opened is told by the first
    /// question that needs it.
    #[must_use]
    pub fn open() -> Self {
        // Bound to nothing: it only carries ioctls.
        let control =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        Self {
            route: Netlink::open(NETLINK_ROUTE),
            generic: Netlink::open(NETLINK_GENERIC),
            diag: Netlink::open(NETLINK_SOCK_DIAG),
            netfilter: Netlink::open(NETLINK_NETFILTER),
            audit: Netlink::open(NETLINK_AUDIT),
            control: control.map_err(|errno| std::io::Error::from(errno).into()),
            families: BTreeMap::new(),
        }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask(&mut self, question: &Question) -> Result<Fact<Answer>, Absence> {
        self.answer(question).map_err(|refused| match (question, absence(&refused)) {
            (Question::AuditStatus, Absence::NotPermitted { .. }) => {
                Absence::NotPermitted { needs: "CAP_AUDIT_CONTROL in the initial user namespace".into() }
            }
            (_, absence) => absence,
        })
    }

    fn answer(&mut self, question: &Question) -> Result<Fact<Answer>, Refused> {
        let from_route = |message: &str| Provenance::Route(message.into());
        let from_netdev = |operation: &str| Provenance::Netdev(operation.into());
        let from_ethtool = |operation: &str| Provenance::Ethtool(operation.into());
        let from_ioctl = |command: &str| Provenance::EthtoolIoctl(command.into());
        Ok(match question {
            Question::Time => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                Fact::new(Answer::Time(now), Provenance::Derived("the clock".into()))
            }
            Question::Links => Fact::new(Answer::Links(self.links()?), from_route("RTM_GETLINK")),
            Question::Qdiscs => Fact::new(Answer::Qdiscs(self.qdiscs()?), from_route("RTM_GETQDISC")),
            Question::Queues => Fact::new(Answer::Queues(self.queues()?), from_netdev("queue-get")),
            Question::Napis => Fact::new(Answer::Napis(self.napis()?), from_netdev("napi-get")),
            Question::QueueCounters => {
                Fact::new(Answer::QueueCounters(self.queue_counters()?), from_netdev("qstats-get"))
            }
            Question::XdpFeatures => {
                Fact::new(Answer::XdpFeatures(self.xdp_features()?), from_netdev("dev-get"))
            }
            Question::UdpSockets => Fact::new(Answer::UdpSockets(self.udp_sockets()?), Provenance::SockDiag),
            Question::NftChains => Fact::new(
                Answer::NftChains(self.nft_chains()?),
                Provenance::Nftables("NFT_MSG_GETCHAIN".into()),
            ),
            Question::NetfilterHooks => Fact::new(
                Answer::NetfilterHooks(self.netfilter_hooks()?),
                Provenance::Nftables("NFNL_MSG_HOOK_GET".into()),
            ),
            Question::AuditStatus => {
                Fact::new(Answer::AuditStatus(self.audit_status()?), Provenance::Audit("AUDIT_GET".into()))
            }
            Question::Driver(name) => {
                Fact::new(Answer::Driver(self.driver(name)?), from_ioctl("ETHTOOL_GDRVINFO"))
            }
            Question::PermanentAddress(name) => Fact::new(
                Answer::PermanentAddress(self.permanent_address(name)?),
                from_ioctl("ETHTOOL_GPERMADDR"),
            ),
            Question::Channels(name) => {
                Fact::new(Answer::Channels(self.channels(name)?), from_ethtool("channels-get"))
            }
            Question::Rings(name) => Fact::new(Answer::Rings(self.rings(name)?), from_ethtool("rings-get")),
            Question::Coalescing(name) => {
                Fact::new(Answer::Coalescing(self.coalescing(name)?), from_ethtool("coalesce-get"))
            }
            Question::Features(name) => {
                Fact::new(Answer::Features(self.features(name)?), from_ethtool("features-get"))
            }
            Question::Rss(name) => match self.rss(name) {
                Ok(rss) => Fact::new(Answer::Rss(rss), from_ethtool("rss-get")),
                Err(_) => Fact::new(Answer::Rss(self.rss_by_ioctl(name)?), from_ioctl("ETHTOOL_GRSSH")),
            },
            Question::HashFields(name) => match self.hash_fields(name) {
                Ok(Some(fields)) => Fact::new(Answer::HashFields(fields), from_ethtool("rss-get")),
                _ => Fact::new(
                    Answer::HashFields(self.hash_fields_by_ioctl(name)?),
                    from_ioctl("ETHTOOL_GRXFH"),
                ),
            },
            Question::FlowRules(name) => {
                Fact::new(Answer::FlowRules(self.flow_rules(name)?), from_ioctl("ETHTOOL_GRXCLSRULE"))
            }
            Question::TimeStampingOffer(name) => Fact::new(
                Answer::TimeStampingOffer(self.time_stamping_offer(name)?),
                from_ethtool("tsinfo-get"),
            ),
            Question::TimeStamping(name) => match self.time_stamping(name) {
                Ok(set) => Fact::new(Answer::TimeStamping(set), from_ethtool("tsconfig-get")),
                Err(_) => Fact::new(
                    Answer::TimeStamping(self.time_stamping_by_ioctl(name)?),
                    Provenance::DeviceIoctl("SIOCGHWTSTAMP".into()),
                ),
            },
            Question::DriverCounters(name) => {
                Fact::new(Answer::DriverCounters(self.driver_counters(name)?), from_ioctl("ETHTOOL_GSTATS"))
            }
        })
    }

    fn route(&mut self) -> Result<&mut Netlink, Refused> {
        self.route.as_mut().map_err(|refused| refused.clone())
    }

    fn control(&self) -> Result<BorrowedFd<'_>, Refused> {
        self.control.as_ref().map(AsFd::as_fd).map_err(Clone::clone)
    }

    /// A request to a generic netlink family: its answers, without netlink's header and generic netlink's.
    fn generic(
        &mut self,
        family: &'static str,
        command: u16,
        dump: bool,
        fill: impl FnOnce(&mut Writer),
    ) -> Result<Answers, Refused> {
        let kind = self.family(family)?;
        let socket = self.generic.as_mut().map_err(|refused| refused.clone())?;
        let body = generic_body(command, fill)?;
        if dump { socket.dump(kind, &body) } else { socket.request(kind, &body) }
    }

    /// The number of a family, which the kernel deals out as they are registered.
    fn family(&mut self, name: &'static str) -> Result<u16, Refused> {
        if let Some(number) = self.families.get(name) {
            return Ok(*number);
        }
        let socket = self.generic.as_mut().map_err(|refused| refused.clone())?;
        let body = generic_body(CTRL_CMD_GETFAMILY, |body| {
            body.text(CTRL_ATTR_FAMILY_NAME, name);
        })?;
        let answers = socket.request(CONTROL, &body).map_err(|refused| match refused.errno {
            Some(libc::ENOENT) => Refused {
                errno: Some(libc::EOPNOTSUPP),
                detail: Some(format!("this kernel has no netlink family {name}")),
                ..refused
            },
            _ => refused,
        })?;
        let number = attributes(&answers).find_map(|answer| answer.number(CTRL_ATTR_FAMILY_ID));
        let number = number.and_then(|number| u16::try_from(number).ok());
        let number = number.ok_or_else(|| Refused::other(format_args!("the family {name} has no number")))?;
        self.families.insert(name, number);
        Ok(number)
    }
}

fn generic_body(command: u16, fill: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, Refused> {
    let command = u8::try_from(command).map_err(Refused::other)?;
    let mut body = Writer::after(&[command, 1, 0, 0]);
    fill(&mut body);
    Ok(body.finish())
}

/// The attributes of generic netlink's answers.
fn attributes(answers: &Answers) -> impl Iterator<Item = Attributes<'_>> {
    answers.bodies().map(|body| Attributes::new(body.get(GENERIC_HEADER..).unwrap_or_default()))
}

/// A refusal to show something, as what it means for the reader.
fn absence(refused: &Refused) -> Absence {
    match refused.errno {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => Absence::NotSupported,
        Some(libc::EPERM | libc::EACCES) => Absence::NotPermitted { needs: "CAP_NET_ADMIN".into() },
        Some(libc::ENODEV) => Absence::NotThere,
        _ => Absence::Failed(refused.why()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        assert_eq!(absence(&Refused::errno(libc::EOPNOTSUPP)), Absence::NotSupported);
        assert_eq!(absence(&Refused::errno(libc::ENODEV)), Absence::NotThere);
        assert!(matches!(absence(&Refused::errno(libc::EPERM)), Absence::NotPermitted { .. }));
        let mut busy = Refused::errno(libc::EBUSY);
        busy.detail = Some("in use by AF_XDP".into());
        assert_eq!(
            absence(&busy),
            Absence::Failed("in use by AF_XDP (Device or resource busy (os error 16))".into())
        );
    }

    #[test]
    fn an_interface_that_is_not_there_is_not_there() {
        let mut kernel = Kernel::open();
        for question in [
            Question::Channels("nope0".into()),
            Question::Driver("nope0".into()),
            Question::Rss("nope0".into()),
        ] {
            assert_eq!(kernel.ask(&question), Err(Absence::NotThere), "{question:?}");
        }
        // A name that the kernel could not have.
        let long = "a-name-of-more-than-fifteen-characters".to_owned();
        assert!(kernel.ask(&Question::Driver(long.clone())).is_err());
        assert!(kernel.ask(&Question::Channels(long)).is_err());
    }
}
