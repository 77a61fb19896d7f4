//! Configuration of a port: memory, rings, copy mode, polling.

use std::fmt;

use udpath_bpf::LiveFrames;

use super::error::Error;
use super::ring::MAX_RING_LEN;
use crate::frame::BURST;
use crate::port::Checksums;
use crate::wire::{ethernet, vlan};

/// Headroom that the kernel reserves before each received packet, bytes (`XDP_PACKET_HEADROOM`, linux/bpf.h).
pub(super) const HEADROOM: usize = 256;
/// Size of a receive or transmit ring entry, and of a fill or completion ring entry, bytes.
const DESCRIPTOR: usize = 16;
const ADDRESS: usize = 8;
/// Who copies packets between the device and the frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Copying {
    /// Zero-copy if the driver supports it, otherwise the kernel copies. The port reports which was chosen.
    #[default]
    Auto,
    /// The kernel copies, on every driver.
    Kernel,
    /// No copy: the device reads and writes the frames directly; the port is not opened if it cannot.
    ZeroCopy,
}

/// Where the program that takes datagrams is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver, or fail.
    #[default]
    Native,
    /// In the driver; if it has no XDP, in generic mode, which the device then reports.
    NativeOrGeneric,
    /// Generic mode: after the driver, on the kernel's own buffers.
    Generic,
}

/// The kernel polls the device at the worker's request, rather than on interrupts (`SO_PREFER_BUSY_POLL`). Useful
/// with a worker that never sleeps, and with `napi_defer_hard_irqs` and `gro_flush_timeout` set on the device,
/// without which interrupts stay enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum packets per poll. Too low: more calls. Too high: other users of the device's queue wait longer. Some
    /// drivers reject values above 64.
    pub budget: u16,
    /// How long a blocking call polls, microseconds. The port's own calls never block, but the option must be above
    /// 0.
    pub microseconds: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { budget: BURST as u16, microseconds: 20 }
    }
}

/// Configuration of a port. Ring sizes are powers of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Frames of the port: enough that some are left for receiving when all rings of packets to be sent are full;
    /// otherwise a worker that sleeps then is never woken. Too many: frames are reused less often, and are in no
    /// cache.
    pub frames: usize,
    /// Frame size, 2048 or 4096 bytes, of which the kernel reserves 256: longer packets go to the kernel.
    pub frame_size: usize,
    /// Receive ring, packets. Packets that arrive while it is full are lost. Too small: a worker that is not running
    /// for a moment loses packets. Too large: it later answers requests that no client waits for any more.
    pub receive: u32,
    /// Transmit ring, packets.
    pub transmit: u32,
    /// Fill ring, frames offered for receiving. If smaller than the receive ring, it is the limit.
    pub fill: u32,
    /// Completion ring, frames that were sent. In copy mode it limits the packets in the device's queue.
    pub completion: u32,
    /// Who copies.
    pub copying: Copying,
    /// Busy polling; `None`: on interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// Where the program is attached.
    pub attach: Attach,
    /// How received checksums are treated. `Partial` on an interface without a device of its own (veth, bridge, bond,
    /// VLAN, macvlan): packets from local senders have no UDP checksum there, and would all fail verification.
    pub checksums: Checksums,
    /// Have the device's RSS hash written in front of frames, where the driver supplies it. For workers that steer
    /// frames: it costs the program time for each frame, and is useless without steering.
    pub rx_hash: bool,
    /// Where packets would be copied, send many at once as live frames, in bulk and without a kernel buffer for each.
    /// Needs CAP_PERFMON and CAP_SYS_ADMIN in addition; without them, or where the driver does not support it,
    /// packets are sent one by one.
    pub live_frames: bool,
}

/// 8 MiB per port. At a million packets per second the receive ring holds two milliseconds of packets, half a
/// scheduler tick at 250 Hz; transmitted packets leave sooner.
impl Default for Config {
    fn default() -> Self {
        Self {
            frames: 4096,
            frame_size: 2048,
            receive: 2048,
            transmit: 1024,
            fill: 2048,
            completion: 1024,
            copying: Copying::Auto,
            busy_poll: None,
            attach: Attach::Native,
            checksums: Checksums::Unverified,
            rx_hash: false,
            live_frames: false,
        }
    }
}

impl Config {
    /// The longest frame that can be received, bytes.
    #[must_use]
    pub const fn max_frame_len(&self) -> usize {
        self.frame_size.saturating_sub(HEADROOM)
    }

    /// The longest frame that an interface with this MTU can send, bytes, VLAN tags included.
    pub(super) fn max_transmit_len(&self, mtu: u32) -> usize {
        (mtu as usize + ethernet::LEN + vlan::MAX * vlan::LEN).min(self.max_frame_len())
    }

    /// Memory of one port, bytes: frames, rings, and waiting live frames, all allocated up front. In copy mode,
    /// packets in the device's queue use kernel memory in addition: up to [`Config::in_flight`].
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.frames * self.frame_size
            + (self.receive + self.transmit) as usize * DESCRIPTOR
            + (self.fill + self.completion) as usize * ADDRESS
            + if self.live_frames { LiveFrames::MEMORY } else { 0 }
    }

    /// Maximum kernel memory for copies of packets on their way to the wire in copy mode, bytes.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        // A copy is a buffer of the packet's size plus the kernel's headers, about 1 KiB together.
        self.completion as usize * (self.frame_size + 1024)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let rings = [
            ("receive", self.receive),
            ("transmit", self.transmit),
            ("fill", self.fill),
            ("completion", self.completion),
        ];
        for (ring, size) in rings {
            if !size.is_power_of_two() || !(BURST as u32..=MAX_RING_LEN).contains(&size) {
                return Err(Error::RingSize { ring, size });
            }
        }
        let least = self.fill.max(self.transmit + self.completion) as usize + BURST;
        if self.frames < least {
            return Err(Error::FewFrames { frames: self.frames, least });
        }
        Ok(())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, frame_size, receive, transmit, fill, completion, .. } = self;
        let mib = self.memory() as f64 / f64::from(1 << 20);
        write!(
            f,
            "{frames} frames of {frame_size} bytes, rings of {receive} (receive), {transmit} (transmit), {fill} (fill) \
             and {completion} (completion) entries{}: {mib:.1} MiB a queue",
            if self.live_frames { ", live frames" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_reports_its_memory() {
        let config = Config::default();
        config.check().unwrap();
        assert_eq!(config.memory(), (8 << 20) + (72 << 10));
        assert_eq!(
            config.to_string(),
            "4096 frames of 2048 bytes, rings of 2048 (receive), 1024 (transmit), 2048 (fill) and 1024 (completion) \
             entries: 8.1 MiB a queue"
        );
    }

    #[test]
    fn live_frames_are_counted_in() {
        let config = Config { live_frames: true, ..Config::default() };
        assert_eq!(config.memory(), Config::default().memory() + LiveFrames::MEMORY);
        assert!(config.to_string().ends_with("1024 (completion) entries, live frames: 9.1 MiB a queue"));
    }

    #[test]
    fn impossible_sizes_are_rejected() {
        let error = |config: Config| config.check().unwrap_err().to_string();
        let config = Config { fill: 1000, ..Config::default() };
        assert_eq!(error(config), "invalid fill ring size 1000: expected a power of two from 64 to 65536");
        let config = Config { transmit: 1 << 17, ..Config::default() };
        assert!(error(config).starts_with("invalid transmit ring size 131072"));
        let config = Config { frames: 2048, ..Config::default() };
        assert_eq!(
            error(config),
            "2048 frames are too few for a port: its rings and a burst need 2112; use more frames or smaller rings"
        );
    }
}
