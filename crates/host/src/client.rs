//! The client of the kernel in one network namespace: turns questions into requests, and answers into facts of the
//! snapshot. Each file holds types of answers, and fills them from the messages of a family.
//!
//! ```text
//!  Question --> netlink: ethtool, netdev, route      first
//!          |--> netlink: sock_diag, nftables, audit  sockets, chains of rules, whether system calls are audited
//!          |--> BPF iterator                         reuseport groups: their order and their programs
//!          \--> ioctl: what netlink lacks            driver's name and counters, flow rules; RSS and time stamping of
//!                                                   older kernels
//! ```
//! Requests and sockets come from the crate `udpath-netlink`. The sockets belong to the namespace of the thread that
//! opened them, whichever thread uses them. The iterator needs root, and lists the namespace of the thread that asks;
//! the rest needs no privilege. This crate changes nothing.

pub(crate) mod audit;
mod flow_rules;
pub(crate) mod hooks;
pub(crate) mod netdev;
pub(crate) mod netfilter;
pub(crate) mod reuseport;
pub(crate) mod route;
pub(crate) mod sockets;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use udpath_netlink::ethtool::{channels, coalesce, features, rings, rss, time_stamping};
use udpath_netlink::ioctl::device;
use udpath_netlink::{Answers, Audit, Error, Generic, Nfnetlink, Rtnetlink, SockDiag, Writer};

use crate::source::question::{Answer, Question};
use crate::{Absence, Fact, Provenance};

/// Sockets to the kernel, of one network namespace.
pub struct Client {
    route: Result<Rtnetlink, Error>,
    generic: Result<Generic, Error>,
    diag: Result<SockDiag, Error>,
    netfilter: Result<Nfnetlink, Error>,
    audit: Result<Audit, Error>,
    control: Result<OwnedFd, Error>,
    groups: reuseport::Reader,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("generic", &self.generic).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens the sockets, in the calling thread's network namespace. If a socket could not be opened, the first
    /// question that needs it reports why.
    #[must_use]
    pub fn open() -> Self {
        // Not bound: it only carries ioctls.
        let control =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        Self {
            route: Rtnetlink::open(),
            generic: Generic::open(),
            diag: SockDiag::open(),
            netfilter: Nfnetlink::open(),
            audit: Audit::open(),
            control: control.map_err(Error::from),
            groups: reuseport::Reader::default(),
        }
    }

    /// Of a kernel without nfnetlink, so without nftables.
    #[cfg(test)]
    pub(crate) fn without_netfilter() -> Self {
        Self { netfilter: Err(Error::errno(libc::EOPNOTSUPP)), ..Self::open() }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// The reason there is no answer.
    pub fn ask(&mut self, question: &Question) -> Result<Fact<Answer>, Absence> {
        self.answer(question).map_err(|refused| match (question, absence(&refused)) {
            (Question::AuditStatus, Absence::NotPermitted { .. }) => {
                Absence::NotPermitted { needs: "CAP_AUDIT_CONTROL in the initial user namespace".into() }
            }
            (Question::ReuseportGroups, Absence::NotPermitted { .. }) => {
                Absence::NotPermitted { needs: "root, or CAP_BPF and CAP_PERFMON,".into() }
            }
            (_, absence) => absence,
        })
    }

    fn answer(&mut self, question: &Question) -> Result<Fact<Answer>, Error> {
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
            Question::Links => {
                Fact::new(Answer::Links(route::links(self.route()?)?), from_route("RTM_GETLINK"))
            }
            Question::Qdiscs => {
                Fact::new(Answer::Qdiscs(route::qdiscs(self.route()?)?), from_route("RTM_GETQDISC"))
            }
            Question::Queues => {
                Fact::new(Answer::Queues(netdev::queues(self.generic()?)?), from_netdev("queue-get"))
            }
            Question::Napis => {
                Fact::new(Answer::Napis(netdev::napis(self.generic()?)?), from_netdev("napi-get"))
            }
            Question::QueueCounters => Fact::new(
                Answer::QueueCounters(netdev::queue_counters(self.generic()?)?),
                from_netdev("qstats-get"),
            ),
            Question::XdpFeatures => {
                Fact::new(Answer::XdpFeatures(netdev::xdp_features(self.generic()?)?), from_netdev("dev-get"))
            }
            Question::Neighbours => {
                Fact::new(Answer::Neighbours(route::neighbours(self.route()?)?), from_route("RTM_GETNEIGH"))
            }
            Question::UdpSockets => {
                Fact::new(Answer::UdpSockets(sockets::udp_sockets(self.diag()?)?), Provenance::SockDiag)
            }
            Question::ReuseportGroups => {
                Fact::new(Answer::ReuseportGroups(self.groups.groups()?), Provenance::Iterator("udp".into()))
            }
            Question::NftChains => Fact::new(
                Answer::NftChains(netfilter::chains(self.netfilter()?)?),
                Provenance::Nftables("NFT_MSG_GETCHAIN".into()),
            ),
            Question::NetfilterHooks => Fact::new(
                Answer::NetfilterHooks(self.netfilter_hooks()?),
                Provenance::Nftables("NFNL_MSG_HOOK_GET".into()),
            ),
            Question::AuditStatus => Fact::new(
                Answer::AuditStatus(audit::status(self.audit()?)?),
                Provenance::Audit("AUDIT_GET".into()),
            ),
            Question::Driver(name) => Fact::new(
                Answer::Driver(device::driver(self.control()?, name)?),
                from_ioctl("ETHTOOL_GDRVINFO"),
            ),
            Question::PermanentAddress(name) => Fact::new(
                Answer::PermanentAddress(route::mac(&device::permanent_address(self.control()?, name)?)),
                from_ioctl("ETHTOOL_GPERMADDR"),
            ),
            Question::Channels(name) => Fact::new(
                Answer::Channels(channels::read(self.generic()?, name)?),
                from_ethtool("channels-get"),
            ),
            Question::Rings(name) => {
                Fact::new(Answer::Rings(rings::read(self.generic()?, name)?), from_ethtool("rings-get"))
            }
            Question::Coalescing(name) => Fact::new(
                Answer::Coalescing(coalesce::read(self.generic()?, name)?),
                from_ethtool("coalesce-get"),
            ),
            Question::Features(name) => Fact::new(
                Answer::Features(features::read(self.generic()?, name)?),
                from_ethtool("features-get"),
            ),
            Question::Rss(name) => match self.generic().and_then(|generic| rss::read(generic, name)) {
                Ok(rss) => Fact::new(Answer::Rss(rss), from_ethtool("rss-get")),
                Err(_) => Fact::new(Answer::Rss(self.rss_by_ioctl(name)?), from_ioctl("ETHTOOL_GRSSH")),
            },
            Question::HashFields(name) => {
                match self.generic().and_then(|generic| rss::read_hash_fields(generic, name)) {
                    Ok(Some(fields)) => Fact::new(Answer::HashFields(fields), from_ethtool("rss-get")),
                    _ => Fact::new(
                        Answer::HashFields(device::hash_fields(self.control()?, name)?),
                        from_ioctl("ETHTOOL_GRXFH"),
                    ),
                }
            }
            Question::FlowRules(name) => Fact::new(
                Answer::FlowRules(flow_rules::flow_rules(self.control()?, name)?),
                from_ioctl("ETHTOOL_GRXCLSRULE"),
            ),
            Question::TimeStampingOffer(name) => Fact::new(
                Answer::TimeStampingOffer(time_stamping::read_offer(self.generic()?, name)?),
                from_ethtool("tsinfo-get"),
            ),
            Question::TimeStamping(name) => {
                match self.generic().and_then(|generic| time_stamping::read(generic, name)) {
                    Ok(set) => Fact::new(Answer::TimeStamping(set), from_ethtool("tsconfig-get")),
                    Err(_) => Fact::new(
                        Answer::TimeStamping(time_stamping::read_by_ioctl(self.control()?, name)?),
                        Provenance::DeviceIoctl("SIOCGHWTSTAMP".into()),
                    ),
                }
            }
            Question::DriverCounters(name) => Fact::new(
                Answer::DriverCounters(device::driver_counters(self.control()?, name)?),
                from_ioctl("ETHTOOL_GSTATS"),
            ),
        })
    }

    fn netfilter_hooks(&mut self) -> Result<Vec<hooks::Hook>, Error> {
        let mut found = hooks::of_families(self.netfilter()?)?;
        let links = route::links(self.route()?)?;
        let devices = links.iter().map(|link| link.name.as_str());
        found.extend(hooks::of_devices(self.netfilter()?, devices)?);
        Ok(found)
    }

    /// Requests a list of nftables objects; `body` excludes its header.
    pub(crate) fn nft_list(&mut self, message: u16, family: u8, body: &Writer) -> Result<Answers, Error> {
        self.netfilter()?.nftables(message, family, body)
    }

    fn rss_by_ioctl(&mut self, interface: &str) -> Result<rss::Rss, Error> {
        let control = self.control.as_ref().map_err(Clone::clone)?;
        let generic = self.generic.as_mut();
        let functions = || generic.ok().and_then(|generic| rss::functions(generic).ok()).unwrap_or_default();
        device::rss(control.as_fd(), interface, functions)
    }

    fn route(&mut self) -> Result<&mut Rtnetlink, Error> {
        self.route.as_mut().map_err(|refused| refused.clone())
    }

    fn generic(&mut self) -> Result<&mut Generic, Error> {
        self.generic.as_mut().map_err(|refused| refused.clone())
    }

    fn netfilter(&mut self) -> Result<&mut Nfnetlink, Error> {
        self.netfilter.as_mut().map_err(|refused| refused.clone())
    }

    fn diag(&mut self) -> Result<&mut SockDiag, Error> {
        self.diag.as_mut().map_err(|refused| refused.clone())
    }

    fn audit(&mut self) -> Result<&mut Audit, Error> {
        self.audit.as_mut().map_err(|refused| refused.clone())
    }

    fn control(&self) -> Result<BorrowedFd<'_>, Error> {
        self.control.as_ref().map(AsFd::as_fd).map_err(Clone::clone)
    }
}

/// Maps an error of a read to its meaning for the reader.
fn absence(refused: &Error) -> Absence {
    match refused.errno {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => Absence::NotSupported,
        Some(libc::EPERM | libc::EACCES) => Absence::NotPermitted { needs: "CAP_NET_ADMIN".into() },
        Some(libc::ENODEV) => Absence::NotThere,
        _ => Absence::Failed(refused.why()),
    }
}

#[cfg(test)]
mod tests {
    use udpath_netlink::numbers;

    use super::*;
    use crate::btf;

    /// The newest constants, RSS_SET and related ones, were added in this kernel. An older one lacks some; only those
    /// are not compared.
    const NEWEST: (u32, u32) = (6, 17);
    /// Prefixes of names defined by modules, which are not built in everywhere.
    const OF_MODULES: [&str; 3] = ["IFLA_VLAN_", "NFNLA_", "VETH_"];

    fn release() -> (u32, u32) {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    #[test]
    fn netlinks_numbers_are_the_running_kernels() {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let kernel = btf::enumerators(&bytes).unwrap();
        let mut compared = 0;
        for (name, ours) in numbers::ALL {
            match kernel.get(*name) {
                Some(theirs) => {
                    assert_eq!(u32::from(*ours), *theirs, "{name}");
                    compared += 1;
                }
                None => assert!(
                    release() < NEWEST || OF_MODULES.iter().any(|start| name.starts_with(start)),
                    "the kernel has no {name}"
                ),
            }
        }
        // Linux 6.1 has this many.
        assert!(compared > 80, "{compared}");
    }

    #[test]
    fn refusals_are_distinguished() {
        assert_eq!(absence(&Error::errno(libc::EOPNOTSUPP)), Absence::NotSupported);
        assert_eq!(absence(&Error::errno(libc::ENODEV)), Absence::NotThere);
        assert!(matches!(absence(&Error::errno(libc::EPERM)), Absence::NotPermitted { .. }));
        let mut busy = Error::errno(libc::EBUSY);
        busy.detail = Some("in use by AF_XDP".into());
        assert_eq!(
            absence(&busy),
            Absence::Failed("in use by AF_XDP (Device or resource busy (os error 16))".into())
        );
    }

    #[test]
    fn this_kernel_lists_hooks_or_says_why_not() {
        match Client::open().netfilter_hooks() {
            Ok(hooks) => assert!(hooks.iter().all(|hook| !hook.family.is_empty())),
            Err(refused) => {
                let why_not = [libc::EOPNOTSUPP, libc::EPERM];
                assert!(refused.errno.is_some_and(|errno| why_not.contains(&errno)), "{refused:?}");
            }
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_not_there() {
        let mut kernel = Client::open();
        for question in [
            Question::Channels("nope0".into()),
            Question::Driver("nope0".into()),
            Question::Rss("nope0".into()),
        ] {
            assert_eq!(kernel.ask(&question), Err(Absence::NotThere), "{question:?}");
        }
        // A name longer than the kernel allows.
        let long = "a-name-of-more-than-fifteen-characters".to_owned();
        assert!(kernel.ask(&Question::Driver(long.clone())).is_err());
        assert!(kernel.ask(&Question::Channels(long)).is_err());
    }
}
