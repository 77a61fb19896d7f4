//! What the probe of `xdp` must show: that a frame of each interface's queue comes to its worker, to the service's place
//! in it, and leaves as a reply.
//!
//! ```text
//! 1  nothing bound yet  ─ trial's program ─ frame injected ─▸ queue 0's socket ─▸ worker ─▸ reply on its transmit ring
//! 2  bound              ─ attached program, asked for every queue: would it hand the frame to that queue's socket?
//! ```
//! The kernel injects frames on queue 0 alone, and not into memory that a driver fills (zero-copy). So of the other
//! queues the second step is all there is to be seen before real traffic: the program, its maps and the socket in them.
//! [`XdpPortStatus::probe`](crate::status::XdpPortStatus) says which it was.
//!
//! A frame comes from a documentation address (RFC 5737, RFC 3849), or else from one of the link's, whichever the program does
//! not leave to the kernel, and from the interface's own MAC address. So its reply, which leaves by the device, is for a
//! station that no other on the link is.
//!
//! What came before the second step is the probe's, whole: it is taken off the counters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use udpath_stack::counters::{Drop as FrameDrop, Snapshot};
use udpath_stack::port::xdp::{Sources, Trial, XdpDevice};
use udpath_stack::tables::View;
use udpath_stack::wire::{Flow, Link, Mac, Tags, UdpChecksum, build};

use super::fast_path::FastPath;
use super::state::lock;
use crate::error::Error;
use crate::io::Io;
use crate::probe::Prober;

/// The port that frames come from: discard, whose owner expects nothing.
const SOURCE_PORT: u16 = 9;
/// Room for a frame of the probe: all headers and a frame.
const BUFFER_LEN: usize = 256;

/// What is to be shown.
pub(crate) struct QueueProbe {
    /// By device.
    trials: Vec<Option<Trial>>,
    frames: Vec<ProbeFrame>,
}

/// A datagram to an address that is served, by one interface.
#[derive(Debug, Clone, Copy)]
struct ProbeFrame {
    device: usize,
    mac: [u8; 6],
    from: SocketAddr,
    to: SocketAddr,
}

impl QueueProbe {
    /// For all of `binds` on all of the devices, each of which has at most one trial.
    pub(super) fn new(
        devices: &[XdpDevice],
        mut trials: Vec<Option<Trial>>,
        binds: &[SocketAddr],
        view: &View<'_>,
    ) -> Result<Self, Error> {
        let mut frames = Vec::new();
        for (index, (device, trial)) in devices.iter().zip(&mut trials).enumerate() {
            for bind in binds {
                if let Some(trial) = trial {
                    trial.bind(*bind).map_err(|error| Error::Xdp(error.to_string()))?;
                }
                // A wildcard's family may have no address there: then nothing comes for it either.
                let Some(ip) = destination(bind.ip(), device, view) else { continue };
                let to = SocketAddr::new(ip, bind.port());
                let from =
                    SocketAddr::new(choose_source(ip, device.sources(), &on_link(device, view)), SOURCE_PORT);
                frames.push(ProbeFrame { device: index, mac: device.mac(), from, to });
            }
        }
        Ok(Self { trials, frames })
    }

    /// Shows it, and begins to take what is for the addresses served.
    pub(crate) fn run(self, fast_path: &FastPath, prober: &Prober<'_>) -> Result<(), Error> {
        let failed = |reason| Error::Probe { io: Io::Xdp, reason };
        for frame in &self.frames {
            if let Some(trial) = &self.trials[frame.device] {
                frame.injected(trial, fast_path, prober).map_err(failed)?;
            }
        }
        // From here on frames may be anybody's.
        fast_path.forget_probe();
        drop(self.trials);
        let mut filter = lock(&fast_path.shared.filter);
        filter.start()?;
        for (index, device) in filter.devices.iter_mut().enumerate() {
            for frame in self.frames.iter().filter(|frame| frame.device == index) {
                for queue in 0..device.queues() {
                    frame.taken(device, queue, prober).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

impl ProbeFrame {
    fn frame(&self, prober: &Prober<'_>) -> Result<Vec<u8>, String> {
        let unfit = |error: udpath_stack::wire::Unfit| error.to_string();
        let own = Mac(self.mac);
        let link = Link { source: own, destination: own, tags: Tags::NONE };
        let flow = Flow::new(link, self.from, self.to).map_err(unfit)?;
        let mut frame = vec![0; BUFFER_LEN];
        let headers = build(&mut frame, &flow, &prober.request(), UdpChecksum::Computed).map_err(unfit)?;
        frame.truncate(headers.frame_end());
        Ok(frame)
    }

    fn injected(&self, trial: &Trial, fast_path: &FastPath, prober: &Prober<'_>) -> Result<(), String> {
        let queue = fast_path.name_of(self.device, 0);
        let cannot = |error: udpath_stack::port::xdp::Error| format!("{queue}: {error}");
        let frame = self.frame(prober)?;
        if let Some(why) = trial.leaves(&frame).map_err(cannot)? {
            return Err(self.left(&queue, &format!(" ({why})")));
        }
        let before = fast_path.with_probe().total;
        trial.inject(&frame).map_err(cannot)?;
        // A device without a carrier drops it: that is none of the queue's.
        let left = |frames: &Snapshot| frames.answered + frames.dropped(FrameDrop::TransmitFull);
        // At rest: workers count what they did at the end of a turn, and what comes later would be traffic's.
        let is_done = |now: &Snapshot| left(now) > left(&before) && now.is_at_rest();
        if prober.wait(|| is_done(&fast_path.with_probe().total)) {
            return Ok(());
        }
        let waited = Prober::WAIT_TIMEOUT.as_secs();
        let came = describe(&before, &fast_path.with_probe().total);
        Err(format!("{queue}: no answer left within {waited} s to {self}, put into the queue; {came}"))
    }

    fn taken(&self, device: &mut XdpDevice, queue: u32, prober: &Prober<'_>) -> Result<(), String> {
        let name = format!("{} queue {queue}", device.name());
        match device.takes(&self.frame(prober)?, queue) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.left(&name, "")),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    fn left(&self, queue: &str, why: &str) -> String {
        format!(
            "{queue}: the program leaves {self} to the kernel{why}; serve another address, or use reuseport"
        )
    }
}

impl std::fmt::Display for ProbeFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a datagram from {} to {}", self.from, self.to)
    }
}

/// What became of frames meanwhile, for a sentence.
fn describe(before: &Snapshot, now: &Snapshot) -> String {
    let received = now.received - before.received;
    if received == 0 {
        return "no worker received anything".into();
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

/// Where to send so that it comes to what is served at `ip`: of a wildcard, an address of the interface.
fn destination(ip: IpAddr, device: &XdpDevice, view: &View<'_>) -> Option<IpAddr> {
    if !ip.is_unspecified() {
        return Some(ip);
    }
    let of_family = |address: &IpAddr| address.is_ipv4() == ip.is_ipv4() && !address.is_loopback();
    let locals = view.addresses.of(device.index()).iter().filter(|local| local.usable);
    locals.map(|local| local.address).find(of_family)
}

/// A sender for a frame to `ip`: a documentation address, or else one of `on_link`, that the program does not leave to the
/// kernel. If all are left, so will the frame be, and the probe says so.
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

/// Addresses next to those of the interface: of its networks, so that their way back is by it.
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
    fn what_came_is_told() {
        let before = Snapshot::default();
        assert_eq!(describe(&before, &before), "no worker received anything");
        let mut now = before.clone();
        (now.received, now.declined) = (2, 1);
        assert_eq!(describe(&before, &now), "workers received 2 and declined 1");
    }
}
