//! What a port is made with: memory, rings, who copies, who polls.

use std::fmt;

use udpath_bpf::LiveFrames;

use super::error::Error;
use super::ring::MAX_RING_LEN;
use crate::frame::BURST;
use crate::port::Checksums;
use crate::wire::{ethernet, vlan};

/// Bytes the kernel keeps free before each packet it receives (`XDP_PACKET_HEADROOM`, linux/bpf.h).
pub(super) const HEADROOM: usize = 256;
/// Bytes of a receive or transmit ring's entry, and of a fill or completion ring's.
const DESCRIPTOR: usize = 16;
const ADDRESS: usize = 8;
/// Who copies packets between the device and the frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Copying {
    /// The device if its driver can, else the kernel. The port says which it became.
    #[default]
    Auto,
    /// The kernel, on every driver.
    Kernel,
    /// Nobody: the device writes and reads the frames itself, or the port is not opened.
    ZeroCopy,
}

/// Where the program that takes datagrams is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver, or not at all.
    #[default]
    Native,
    /// In the driver; if that has no XDP, behind it, which the device then reports.
    NativeOrGeneric,
    /// Behind the driver, on the kernel's own buffers.
    Generic,
}

/// The kernel polls the device when the worker requests, rather than on interrupts (`SO_PREFER_BUSY_POLL`). Of use with a
/// worker that never sleeps, and with `napi_defer_hard_irqs` and `gro_flush_timeout` set on the device, without which
/// interrupts stay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// Packets a poll handles at most. Too low: more calls; too high: others of the device's queue wait longer. Above
    /// 64 some drivers object.
    pub budget: u16,
    /// How long a blocking call polls, microseconds. The port's own calls never block; the option must be above 0.
    pub microseconds: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { budget: BURST as u16, microseconds: 20 }
    }
}

/// What a port is made with. Ring sizes are powers of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Frames of the port: enough that some are left for packets to come when all rings of packets to be sent are full,
    /// or a worker that sleeps then is never woken. Too many: frames come round less often, and are in no cache.
    pub frames: usize,
    /// Bytes of a frame, 2048 or 4096, of which the kernel keeps 256: what is longer than the rest goes to the kernel.
    pub frame_size: usize,
    /// Receive ring, packets. What comes while it is full is lost: too small, and a worker that is away for a moment
    /// loses packets; too large, and it later answers what nobody waits for any more.
    pub receive: u32,
    /// Transmit ring, packets.
    pub transmit: u32,
    /// Fill ring, frames offered for packets to come. Below the receive ring's size it is the bound.
    pub fill: u32,
    /// Completion ring, frames that were sent. In copy mode it bounds the packets in the device's queue.
    pub completion: u32,
    /// Who copies.
    pub copying: Copying,
    /// Whether the kernel polls when asked; `None`: on interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// Where the program is attached.
    pub attach: Attach,
    /// What is known of received checksums. `Partial` on an interface without a device of its own (veth, bridge, bond, VLAN,
    /// macvlan): packets of a local sender come without a UDP checksum there, and would all fail the check.
    pub checksums: Checksums,
    /// Have the device's RSS hash written in front of frames, where the driver tells it. For workers that spread frames:
    /// it costs the program time for each, and who needs no hash gains nothing.
    pub rx_hash: bool,
    /// Where packets would be copied, send many at once as live frames, in bulks and without a kernel buffer for each. Needs
    /// CAP_PERFMON and CAP_SYS_ADMIN beside the rest; without, or where the driver cannot, packets are sent one by one.
    pub live_frames: bool,
}

/// 8 MiB a port. At a million packets a second the receive ring holds two milliseconds of them, half a scheduler's tick at
/// 250 Hz; what is sent leaves sooner.
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

    /// The longest frame that can be sent by an interface with this MTU, bytes, VLAN tags among them.
    pub(super) fn max_transmit_len(&self, mtu: u32) -> usize {
        (mtu as usize + ethernet::LEN + vlan::MAX * vlan::LEN).min(self.max_frame_len())
    }

    /// Memory of one port, bytes: frames, rings, and live frames that wait, all of it there from the start. In copy mode
    /// packets that wait in the device's queue take kernel memory beside it: up to [`Config::in_flight`].
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.frames * self.frame_size
            + (self.receive + self.transmit) as usize * DESCRIPTOR
            + (self.fill + self.completion) as usize * ADDRESS
            + if self.live_frames { LiveFrames::MEMORY } else { 0 }
    }

    /// Most kernel memory that copies of packets on their way to the wire take in copy mode, bytes.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        // A copy is a buffer of the packet's size and the kernel's headers of it, about 1 KiB together.
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
    fn the_default_is_sound_and_says_what_it_takes() {
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
    fn impossible_sizes_are_told() {
        let told = |config: Config| config.check().unwrap_err().to_string();
        let config = Config { fill: 1000, ..Config::default() };
        assert_eq!(
            told(config),
            "a fill ring of 1000 entries is not possible; use a power of two from 64 to 65536"
        );
        let config = Config { transmit: 1 << 17, ..Config::default() };
        assert!(told(config).starts_with("a transmit ring of 131072 entries"));
        let config = Config { frames: 2048, ..Config::default() };
        assert_eq!(
            told(config),
            "2048 frames are too few for a port: its rings and a burst take 2112; smaller rings take fewer"
        );
    }
}
