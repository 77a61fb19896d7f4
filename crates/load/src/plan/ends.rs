//! The ends of a plan's flows: what is wrong with them, and where their sockets are bound.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{MAX_FLOWS, Mode, Plan, PlanError};
use crate::ends;

impl Plan {
    /// Where the socket of a flow to `target` is bound that sends from `ip` and `port`.
    pub(crate) fn bound(&self, ip: IpAddr, port: u16, target: SocketAddr) -> SocketAddr {
        let mut local = SocketAddr::new(ip, port);
        if let SocketAddr::V6(v6) = &mut local
            && v6.ip().is_unicast_link_local()
        {
            let of_target = if let SocketAddr::V6(target) = target { target.scope_id() } else { 0 };
            v6.set_scope_id(if self.source_scope == 0 { of_target } else { self.source_scope });
        }
        local
    }

    pub(super) fn check_ends(&self) -> Result<(), PlanError> {
        let Some(first) = self.targets.first() else { return Err(PlanError::NoTarget) };
        for target in &self.targets {
            if target.port() == 0 {
                return Err(PlanError::PortZero(*target));
            }
            if target.ip().is_unspecified() {
                return Err(PlanError::Unspecified(*target));
            }
            if ends::is_unscoped(target) {
                return Err(PlanError::NoInterface(*target));
            }
            // Broadcast addresses of networks are refused by the kernel, at the connect.
            let ip = target.ip().to_canonical();
            if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
                return Err(PlanError::Group(SocketAddr::new(ip, target.port())));
            }
            if target.is_ipv4() != first.is_ipv4() {
                return Err(PlanError::Families { one: first.ip(), other: target.ip() });
            }
        }
        for source in &self.sources {
            if source.is_ipv4() != first.is_ipv4() {
                return Err(PlanError::Families { one: first.ip(), other: *source });
            }
            if source.is_unspecified() || source.is_multicast() {
                return Err(PlanError::Source(*source));
            }
            if self.targets.iter().any(|target| ends::is_unscoped(&self.bound(*source, 0, *target))) {
                return Err(PlanError::SourceWithoutInterface(*source));
            }
        }
        if !self.segment.is_whole() && self.mode != Mode::Rr {
            return Err(PlanError::OneWaySegment(self.mode));
        }
        if self.flows == 0 || self.own_flows() > MAX_FLOWS {
            return Err(PlanError::Flows(self.own_flows()));
        }
        if self.flows < self.segment.of() {
            return Err(PlanError::EmptySegments { flows: self.flows, segments: self.segment.of() });
        }
        if let Some(ports) = self.source_ports {
            if ports.first == 0 || ports.last < ports.first {
                return Err(PlanError::PortRange(ports));
            }
            let addresses = self.sources.len().max(1) as u32;
            let have = u64::from(self.segment.flows(ports.count())) * u64::from(addresses);
            if have < u64::from(self.own_flows()) {
                return Err(PlanError::TooFewPorts { flows: self.flows, ports, addresses });
            }
        }
        Ok(())
    }
}
