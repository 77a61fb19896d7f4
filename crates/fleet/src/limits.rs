//! What an agent accepts: decided where it runs, not by who calls.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan};

use crate::message::Order;

/// Targets that an agent may send to: addresses, and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    network: IpAddr,
    prefix: u8,
    ports: RangeInclusive<u16>,
}

/// The limits of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Where it may send to.
    pub targets: Vec<Allowed>,
    /// Transactions per second of this machine at most; none: any rate, closed loops too.
    pub rate: Option<f64>,
    /// Longest warm-up and window together.
    pub time: Duration,
    /// Options of protocols that an order may set; options can name files of this machine.
    pub options: Vec<String>,
}

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A target that is not allowed.
    #[error("target {0} is not allowed here (udpath agent --allow)")]
    Target(SocketAddr),
    /// A rate above the limit.
    #[error("{rate:.0} transactions/s exceed the limit of {most:.0} (udpath agent --max-rate)")]
    Rate {
        /// This machine's share of the plan's highest rate.
        rate: f64,
        /// The limit.
        most: f64,
    },
    /// A load without a rate.
    #[error(
        "a closed loop has no rate, which is limited to {0:.0} transactions/s here (udpath agent --max-rate)"
    )]
    ClosedLoop(f64),
    /// A load that takes too long.
    #[error("{} s exceed the limit of {} s (udpath agent --max-time)", .time.as_secs_f64(), .most.as_secs_f64())]
    Time {
        /// Warm-up and window.
        time: Duration,
        /// The limit.
        most: Duration,
    },
    /// An option that is not allowed.
    #[error("--{0} is not allowed here (udpath agent --allow-option)")]
    Option(String),
}

impl Limits {
    /// Checks an order; its plan's segment is the one that this machine is to carry out.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    pub fn check(&self, order: &Order) -> Result<(), Refusal> {
        let plan = &order.plan;
        let refused =
            plan.targets.iter().find(|target| !self.targets.iter().any(|allowed| allowed.has(**target)));
        if let Some(target) = refused {
            return Err(Refusal::Target(*target));
        }
        if let Some(most) = self.rate {
            let rate = own_peak_rate(plan).ok_or(Refusal::ClosedLoop(most))?;
            if rate > most {
                return Err(Refusal::Rate { rate, most });
            }
        }
        let time = plan.warmup.saturating_add(plan.duration);
        if time > self.time {
            return Err(Refusal::Time { time, most: self.time });
        }
        match order.options.iter().find(|(name, _)| !self.options.contains(name)) {
            Some((name, _)) => Err(Refusal::Option(name.clone())),
            None => Ok(()),
        }
    }
}

/// The highest rate of this machine's segment; none of a closed loop.
fn own_peak_rate(plan: &Plan) -> Option<f64> {
    match plan.arrivals {
        Arrivals::Closed { .. } => None,
        Arrivals::Open { .. } | Arrivals::Ramp { .. } => {
            plan.peak_rate().map(|rate| rate / f64::from(plan.segment.of()))
        }
    }
}

impl Allowed {
    fn has(&self, target: SocketAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let ((network, length), (address, other)) = (bits(self.network), bits(target.ip()));
        let host_bits = length - u32::from(self.prefix);
        let same = network.checked_shr(host_bits).unwrap_or(0) == address.checked_shr(host_bits).unwrap_or(0);
        length == other && same && self.ports.contains(&target.port())
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (address, ports) = match text.strip_prefix('[') {
                Some(rest) => {
                    let (address, rest) = rest.split_once(']')?;
                    (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
                }
                None => match text.split_once(':') {
                    // More than one colon: an IPv6 address without a port.
                    Some((_, rest)) if rest.contains(':') => (text, None),
                    Some((address, ports)) => (address, Some(ports)),
                    None => (text, None),
                },
            };
            let (network, prefix) = match address.split_once('/') {
                Some((network, prefix)) => (network, Some(prefix.parse::<u8>().ok()?)),
                None => (address, None),
            };
            let network: IpAddr = network.parse().ok()?;
            let longest = if network.is_ipv4() { 32 } else { 128 };
            let ports = match ports {
                None => 1..=u16::MAX,
                Some(ports) => {
                    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                    first.parse().ok()?..=last.parse().ok()?
                }
            };
            let prefix = prefix.unwrap_or(longest);
            let valid = prefix <= longest && *ports.start() > 0 && ports.start() <= ports.end();
            valid.then_some(Self { network, prefix, ports })
        };
        parsed().ok_or_else(|| {
            format!(
                "invalid target `{text}`: expected ADDR[/PREFIX][:PORTS], such as 10.0.0.0/8:53, 192.0.2.1:5000-5099 or \
                 [2001:db8::/32]:53"
            )
        })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, prefix, ports } = self;
        let (first, last) = (ports.start(), ports.end());
        match network {
            IpAddr::V4(v4) => write!(f, "{v4}/{prefix}:{first}-{last}"),
            IpAddr::V6(v6) => write!(f, "[{v6}/{prefix}]:{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use udpath_load::plan::{Process, Segment};

    use super::*;

    fn order(target: &str) -> Order {
        let mut plan = Plan::new(target.parse().unwrap());
        plan.arrivals = Arrivals::Open { rate: 8000.0, process: Process::Poisson };
        plan.segment = Segment::new(1, 4).unwrap();
        Order { protocol: "echo".into(), engine: "socket".into(), options: Vec::new(), plan }
    }

    fn limits(targets: &[&str]) -> Limits {
        let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
        Limits { targets, rate: Some(2000.0), time: Duration::from_secs(10), options: vec!["type".into()] }
    }

    #[test]
    fn targets_are_networks_and_ports() {
        let allowed = |target: &str, by: &str| limits(&[by]).check(&order(target)).is_ok();
        for (target, by) in [
            ("10.0.0.2:7", "10.0.0.2:7"),
            ("10.0.0.2:7", "10.0.0.2"),
            ("10.200.0.2:7", "10.0.0.0/8:1-9"),
            ("192.0.2.1:53", "0.0.0.0/0"),
            ("[2001:db8::5]:53", "[2001:db8::/32]:53"),
            ("[2001:db8::5]:53", "2001:db8::5"),
            ("[2001:db8::5]:53", "::/0"),
        ] {
            assert!(allowed(target, by), "{target} by {by}");
        }
        for (target, by) in [
            ("10.0.0.2:8", "10.0.0.2:7"),
            ("10.0.0.3:7", "10.0.0.2"),
            ("11.0.0.2:7", "10.0.0.0/8"),
            ("10.0.0.2:7", "::/0"),
            ("[::ffff:10.0.0.2]:7", "10.0.0.0/8"),
        ] {
            assert!(!allowed(target, by), "{target} by {by}");
        }
        assert_eq!(
            limits(&[]).check(&order("10.0.0.2:7")),
            Err(Refusal::Target("10.0.0.2:7".parse().unwrap()))
        );
        for bad in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.1:0",
            "10.0.0.1:9-8",
            "10.0.0.1:70000",
            "[::1",
            "[::1]x",
            "::/129",
        ] {
            assert!(bad.parse::<Allowed>().unwrap_err().contains("10.0.0.0/8:53"), "{bad}");
        }
        let shown =
            limits(&["10.0.0.0/8:53", "::1"]).targets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown, ["10.0.0.0/8:53-53", "[::1/128]:1-65535"]);
    }

    #[test]
    fn a_caller_cannot_raise_rate_and_time() {
        let limits = limits(&["10.0.0.0/8"]);
        let spoilt = |spoil: fn(&mut Order)| {
            let mut order = order("10.0.0.2:7");
            spoil(&mut order);
            limits.check(&order)
        };
        assert_eq!(spoilt(|_| ()), Ok(()), "a quarter of 8000 per second");
        let whole = spoilt(|order| order.plan.segment = Segment::WHOLE);
        assert_eq!(whole, Err(Refusal::Rate { rate: 8000.0, most: 2000.0 }));
        let ramp = spoilt(|order| order.plan.arrivals = Arrivals::Ramp { from: 1.0, to: 9000.0 });
        assert_eq!(ramp, Err(Refusal::Rate { rate: 2250.0, most: 2000.0 }));
        let closed = spoilt(|order| order.plan.arrivals = Arrivals::Closed { inflight: 1 });
        assert_eq!(closed, Err(Refusal::ClosedLoop(2000.0)));
        let long = spoilt(|order| {
            (order.plan.warmup, order.plan.duration) = (Duration::from_secs(6), Duration::MAX);
        });
        assert!(matches!(long, Err(Refusal::Time { .. })), "{long:?}");
        let file = spoilt(|order| order.options.push(("queries".into(), "/etc/shadow".into())));
        assert_eq!(file, Err(Refusal::Option("queries".into())));
        assert_eq!(spoilt(|order| order.options.push(("type".into(), "A".into()))), Ok(()));
        let any = Limits { rate: None, ..limits.clone() };
        let mut order = order("10.0.0.2:7");
        order.plan.arrivals = Arrivals::Closed { inflight: 1 };
        assert_eq!(any.check(&order), Ok(()));
    }
}
