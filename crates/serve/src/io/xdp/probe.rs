//! The probe of `xdp`: a frame of each queue must reach its worker and the service dispatch in it, and leave as a
//! reply.
//!
//! ```text
//! 1  no address bound yet ─ trial program ─ frame injected ─▸ queue 0's socket ─▸ worker ─▸ reply on its transmit ring
//! 2  addresses bound      ─ attached program, test run for each queue: would it redirect the frame to that queue's socket?
//! ```
//! The kernel injects frames into queue 0 only, and never into memory that a driver fills (zero-copy). For the other
//! queues step 2 is all that can be checked before real traffic: the program, its maps and the socket in them.
//! [`XdpPortStatus::probe`](crate::status::XdpPortStatus) says which of the two passed.
//!
//! A probe frame has a documentation address (RFC 5737, RFC 3849) as its source or, if the program leaves those to the
//! kernel, an address of the link; and the interface's own MAC address. The reply leaves by the device, and no other
//! station of the link accepts it.
//!
//! Everything counted before step 2 belongs to the probe and is subtracted from the counters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use udpath_stack::counters::{DropReason as FrameDrop, Snapshot};
use udpath_stack::port::xdp::{Probe, Sources, XdpDevice};
use udpath_stack::tables::View;
use udpath_stack::wire::{Flow, LinkHeader, Mac, Tags, UdpChecksum, Unfit, build};

use super::error::XdpError;
use super::fast_path::FastPath;
use super::state::lock;
use crate::error::Error;
use crate::io::Io;
use crate::probe::{ProbeError, Prober};

/// Source port of probe frames: discard, whose owner expects no replies.
const SOURCE_PORT: u16 = 9;
/// Buffer for a probe frame: all headers and a probe request.
const BUFFER_LEN: usize = 256;

/// The frames to send, and the programs that inject them.
pub(crate) struct QueueProbe {
    /// By device; `None` where the kernel cannot inject frames.
    trials: Vec<Option<Probe>>,
    frames: Vec<ProbeFrame>,
}

/// A datagram to a served address, arriving on one interface.
#[derive(Debug, Clone, Copy)]
struct ProbeFrame {
    device: usize,
    mac: [u8; 6],
    from: SocketAddr,
    to: SocketAddr,
}

impl QueueProbe {
    /// Prepares a frame for each of `binds` on each device. `trials` has an entry per device.
    pub(super) fn new(
        devices: &[XdpDevice],
        mut trials: Vec<Option<Probe>>,
        binds: &[SocketAddr],
        view: &View<'_>,
    ) -> Result<Self, XdpError> {
        let mut frames = Vec::new();
        for (index, (device, trial)) in devices.iter().zip(&mut trials).enumerate() {
            for bind in binds {
                if let Some(trial) = trial {
                    trial.bind(*bind).map_err(XdpError::address(*bind, device.name()))?;
                }
                // The interface may have no address of a wildcard's family: then no datagram arrives for it either.
                let Some(ip) = destination(bind.ip(), device, view) else { continue };
                let to = SocketAddr::new(ip, bind.port());
                let source = choose_source(ip, device.sources(), &on_link(device, view));
                let from = SocketAddr::new(source, SOURCE_PORT);
                frames.push(ProbeFrame { device: index, mac: device.mac(), from, to });
            }
        }
        Ok(Self { trials, frames })
    }

    /// Step 1.
    pub(crate) fn inject(&self, fast_path: &FastPath, prober: &Prober<'_>) -> Result<(), Error> {
        for frame in &self.frames {
            if let Some(trial) = &self.trials[frame.device] {
                frame.inject(trial, fast_path, prober).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Step 2: from now on the programs take datagrams for the served addresses.
    pub(crate) fn take(self, fast_path: &FastPath, prober: &Prober<'_>) -> Result<(), Error> {
        // Frames received after this may be real traffic.
        fast_path.forget_probe();
        drop(self.trials);
        let mut filter = lock(&fast_path.shared.filter);
        filter.start()?;
        for (index, device) in filter.devices.iter_mut().enumerate() {
            for frame in self.frames.iter().filter(|frame| frame.device == index) {
                for queue in 0..device.queues() {
                    frame.check_redirect(device, queue, prober).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

fn failed(error: ProbeError) -> Error {
    Error::Probe { io: Io::Xdp, source: error.into() }
}

impl ProbeFrame {
    fn build(&self, prober: &Prober<'_>) -> Result<Vec<u8>, ProbeError> {
        let Self { from, to, mac, .. } = *self;
        let unfit = |source: Unfit| ProbeError::Frame { from, to, source };
        let link = LinkHeader { source: Mac(mac), destination: Mac(mac), tags: Tags::NONE };
        let flow = Flow::new(link, from, to).map_err(unfit)?;
        let mut frame = vec![0; BUFFER_LEN];
        let headers = build(&mut frame, &flow, &prober.request(), UdpChecksum::Computed).map_err(unfit)?;
        frame.truncate(headers.frame_end());
        Ok(frame)
    }

    /// Step 1: injects the frame into queue 0 and waits for its reply to leave.
    fn inject(&self, trial: &Probe, fast_path: &FastPath, prober: &Prober<'_>) -> Result<(), ProbeError> {
        let queue = fast_path.name_of(self.device, 0);
        let failed = |operation| ProbeError::on_queue(&queue, operation);
        let frame = self.build(prober)?;
        if let Some(reason) = trial.passes(&frame).map_err(failed("run the XDP program on a probe frame"))? {
            return Err(self.left_to_kernel(queue, format!(" ({reason})")));
        }
        let before = fast_path.with_probe().total;
        trial.inject(&frame).map_err(failed("inject a probe frame"))?;
        // A device without a carrier drops the reply, which is not the queue's fault.
        let finished = |frames: &Snapshot| frames.answered + frames.dropped(FrameDrop::TransmitFull);
        // At rest: workers publish their counters at the end of a turn, and later ones would count as traffic.
        let is_done = |now: &Snapshot| finished(now) > finished(&before) && now.is_at_rest();
        if prober.wait(|| is_done(&fast_path.with_probe().total)) {
            return Ok(());
        }
        let seen = describe(&before, &fast_path.with_probe().total);
        Err(ProbeError::NoReply {
            queue,
            from: self.from,
            to: self.to,
            seconds: Prober::WAIT_TIMEOUT.as_secs(),
            seen,
        })
    }

    /// Step 2: whether the attached program would redirect the frame to the queue's socket.
    fn check_redirect(
        &self,
        device: &mut XdpDevice,
        queue: u32,
        prober: &Prober<'_>,
    ) -> Result<(), ProbeError> {
        let name = format!("{} queue {queue}", device.name());
        let frame = self.build(prober)?;
        let operation = "run the attached XDP program on a probe frame";
        if device.takes(&frame, queue).map_err(ProbeError::on_queue(&name, operation))? {
            return Ok(());
        }
        Err(self.left_to_kernel(name, String::new()))
    }

    fn left_to_kernel(&self, queue: String, reason: String) -> ProbeError {
        ProbeError::LeftToKernel { queue, from: self.from, to: self.to, reason }
    }
}

/// What workers did with frames between two snapshots, for a sentence.
fn describe(before: &Snapshot, now: &Snapshot) -> String {
    let received = now.received - before.received;
    if received == 0 {
        return "no worker received a frame".into();
    }
    let declined = now.declined - before.declined;
    let mut text = format!("workers received {received} and declined {declined}");
    for (reason, count) in now.drops() {
        let count = count - before.dropped(reason);
        if count > 0 {
            text.push_str(&format!(", dropped {count} as {}", reason.name()));
        }
    }
    text
}

/// The address to send to so that a bind to `ip` serves it: for a wildcard, an address of the interface.
fn destination(ip: IpAddr, device: &XdpDevice, view: &View<'_>) -> Option<IpAddr> {
    if !ip.is_unspecified() {
        return Some(ip);
    }
    let of_family = |address: &IpAddr| address.is_ipv4() == ip.is_ipv4() && !address.is_loopback();
    let locals = view.addresses.of(device.index()).iter().filter(|local| local.usable);
    locals.map(|local| local.address).find(of_family)
}

/// The source of a frame to `ip`: a documentation address or one of `on_link`, whichever the program does not leave to
/// the kernel. If it leaves all of them, the probe fails and says so.
fn choose_source(ip: IpAddr, left: &Sources, on_link: &[IpAddr]) -> IpAddr {
    let documentation: [IpAddr; 2] = match ip {
        IpAddr::V4(_) => [1, 2].map(|last| Ipv4Addr::new(192, 0, 2, last).into()),
        IpAddr::V6(_) => [1, 2].map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()),
    };
    let fits = |from: &&IpAddr| **from != ip && from.is_ipv4() == ip.is_ipv4() && !left.leaves(**from);
    documentation
        .iter()
        .chain(on_link)
        .find(fits)
        .copied()
        .unwrap_or(documentation[usize::from(ip == documentation[0])])
}

/// Neighbours of the interface's addresses: they are in its networks, so replies to them are routed by it.
fn on_link(device: &XdpDevice, view: &View<'_>) -> Vec<IpAddr> {
    let next = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => [1, 2, 3].map(|bit| IpAddr::V4((v4.to_bits() ^ bit).into())),
        IpAddr::V6(v6) => [1, 2, 3].map(|bit| IpAddr::V6((v6.to_bits() ^ bit).into())),
    };
    view.addresses.of(device.index()).iter().flat_map(|local| next(local.address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use udpath_stack::port::xdp::Network;

    #[test]
    fn a_frame_never_comes_from_the_address_it_is_for() {
        for ip in ["192.0.2.1", "192.0.2.2", "10.0.0.1", "2001:db8::1", "fe80::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let stranger = choose_source(ip, &Sources::default(), &[]);
            assert_ne!(stranger, ip);
            assert_eq!(stranger.is_ipv4(), ip.is_ipv4());
        }
    }

    #[test]
    fn a_frame_comes_from_whom_the_program_takes_it() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let on_link = ["10.0.0.1", "10.0.0.3"].map(ip);
        let mut left = Sources { addresses: [ip("192.0.2.1")].into(), ..Sources::default() };
        assert_eq!(choose_source(ip("10.0.0.1"), &left, &on_link), ip("192.0.2.2"));
        left.networks.insert(Network { vlan: 0, address: ip("192.0.0.0"), len: 8 });
        assert_eq!(choose_source(ip("10.0.0.1"), &left, &on_link), ip("10.0.0.3"));
    }

    #[test]
    fn counted_frames_are_described() {
        let before = Snapshot::default();
        assert_eq!(describe(&before, &before), "no worker received a frame");
        let mut now = before.clone();
        (now.received, now.declined) = (2, 1);
        assert_eq!(describe(&before, &now), "workers received 2 and declined 1");
    }
}
