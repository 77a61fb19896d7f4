//! A bad path for tests: drops or delays a share of the UDP frames that leave an interface.

use std::sync::atomic::Ordering::Relaxed;

use aya::EbpfLoader;

use udpath_bpf::Error;
use udpath_bpf::SharedArray;
use udpath_bpf::attach::{self, Attached};

/// The compiled program, aligned for the ELF reader.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/impair.o"));

/// The socket mark (`SO_MARK`) of frames that were already delayed: they pass unchanged.
pub const DELAYED_MARK: u32 = 0x7564_7031;

/// Shares of the UDP frames to drop or delay; everything else passes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shares {
    /// Parts per million to drop.
    pub drop_ppm: u32,
    /// Parts per million to send to the delay line instead.
    pub delay_ppm: u32,
    /// Index of the interface the delay line listens on; 0 if nothing is delayed.
    pub delay_ifindex: u32,
}

/// Exact counts of dropped and delayed frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Impaired {
    /// UDP frames seen.
    pub seen: u64,
    /// Dropped.
    pub dropped: u64,
    /// Sent to the delay line.
    pub delayed: u64,
}

/// Impairs the outgoing frames of one interface until dropped.
#[derive(Debug)]
pub struct Impair {
    impaired: SharedArray,
    _attached: Attached,
}

impl Impair {
    /// Attaches to the egress path of `interface` in the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, no permission, or a kernel before 6.6.
    pub fn attach(interface: &str, shares: Shares) -> Result<Self, Error> {
        const NAME: &str = "impair";
        let mut loader = EbpfLoader::new();
        loader
            .override_global("drop_ppm", &shares.drop_ppm, true)
            .override_global("delay_ppm", &shares.delay_ppm, true)
            .override_global("delay_ifindex", &shares.delay_ifindex, true);
        let attached = attach::tc_egress(NAME, &mut loader, OBJECT, interface)?;
        let impaired = SharedArray::map(&attached.object, NAME, "impaired", 1, 3)?;
        Ok(Self { impaired, _attached: attached })
    }

    /// The counts so far.
    #[must_use]
    pub fn impaired(&self) -> Impaired {
        let words = self.impaired.element(0);
        Impaired {
            seen: words[0].load(Relaxed),
            dropped: words[1].load(Relaxed),
            delayed: words[2].load(Relaxed),
        }
    }
}
