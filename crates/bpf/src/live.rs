//! Sends prepared frames in bulk, without an skb for each: loader and shared memory of `bpf/live.bpf.c`.
//!
//! ```text
//!   frame() frame() frame() ...    send(): one system call
//!      ▼       ▼       ▼              │  BPF_PROG_TEST_RUN with live frames: the program once per frame
//!   [ memory shared with the program ]┴▶ copied into pages, redirected ──▶ the driver's ndo_xdp_xmit, 16 at a time
//! ```
//! The frame is copied once, into a page that belongs to the driver until it is sent. [`LiveFrames::send`] returns when
//! all frames have been offered to the driver, with the number it accepted.
//!
//! # What a call costs
//! Each call creates a page pool: about 30 µs, so it pays off from a few dozen frames. Without the following it would
//! take milliseconds: for a run of several frames the kernel adds the program to those it calls directly (the XDP
//! dispatcher), removes it again, and waits for all CPUs each time. A program that is attached somewhere is already in
//! the dispatcher. So for the lifetime of the value it is attached where no frame ever arrives: to the loopback of an
//! otherwise empty network namespace.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use aya::maps::DevMap;
use aya::programs::links::FdLink;
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

use crate::Error;
use crate::attach::{self, object};
use crate::shared_array::{SharedArray, SharedBytes};
use crate::sys;
use udpath_files::kernel;

const NAME: &str = "live";
const TALLY: &str = "tally";
const TRACEPOINT: &str = "xdp_devmap_xmit";
/// Maximum frames per call: `FRAMES` of the program. Fewer: the fixed cost is shared by fewer frames. More: the first
/// frames of a call are long gone when it returns.
const FRAMES: usize = 256;
/// Longest frame, bytes: `FRAME_LEN` of the program. The kernel's own limit is a page less its own data, about 3,400.
const FRAME_LEN: usize = 4096;
/// Shortest frame: an Ethernet header.
const SHORTEST: usize = 14;
/// Frame alignment, bytes: a cache line. Packed more closely, two frames would share one; at page boundaries, they
/// would all compete for the same few cache lines.
const ALIGN: usize = 64;
/// Frames the kernel allocates from the page pool at once; between two such batches it lets softirqs run. Fewer: more
/// softirqs. More: the other end of a veth pair, whose ring holds 256 frames and is emptied in a softirq, drops some.
const BATCH: u32 = 64;

/// Words of `struct control`.
const NEXT: usize = 0;
const END: usize = 1;
const STRIDE: usize = 2;
const INITIAL: usize = 3;
const OPEN: usize = 4;
const SENT: usize = 5;
const WORDS: usize = 7;

/// The program, and the frames waiting to be sent on one interface. See the module.
#[derive(Debug)]
pub struct LiveFrames {
    control: SharedArray,
    frames: SharedBytes,
    /// Length of each frame, bytes.
    lens: SharedArray,
    stride: usize,
    /// The longest frame that can be sent, and the longest that is waiting.
    most: usize,
    longest: usize,
    /// Frames written since the buffer was last empty.
    written: usize,
    /// The number of these already offered to the driver.
    offered: usize,
    /// The initial contents of the kernel's pages, before the program writes the frame.
    blank: Box<[u8]>,
    object: Ebpf,
    _tally: FdLink,
    _held: Held,
}

/// The result of a call.
#[derive(Debug)]
pub struct Offered {
    /// Frames no longer waiting: the first of those that were.
    pub frames: usize,
    /// The number of these that the driver accepted; it dropped the others.
    pub taken: usize,
    /// Why frames are still waiting, if any are. If the driver accepted none, all of them are, and this is the reason.
    pub failed: Option<io::Error>,
}

/// The attachment that keeps the program in the dispatcher.
#[derive(Debug)]
struct Held {
    _link: FdLink,
    /// Keeps the namespace alive.
    _namespace: File,
}

impl LiveFrames {
    /// Memory for waiting frames, bytes, allocated from the start.
    pub const MEMORY: usize = FRAMES * (FRAME_LEN + size_of::<u64>());

    /// Maximum number of waiting frames.
    pub const MOST: usize = FRAMES;

    /// Loads the program for frames of at most `len` bytes (14 to 4,096), to be sent on `interface` in the calling
    /// thread's network namespace. Nothing is attached to the interface.
    ///
    /// # Errors
    /// No such interface, no permission (in addition to the usual ones, `CAP_PERFMON` for the tracepoint and
    /// `CAP_SYS_ADMIN` for the namespace), no memory, a kernel without the required features (Linux 5.18).
    pub fn open(interface: &str, len: usize) -> Result<Self, Error> {
        let trial = |why: String| Error::Trial { program: NAME, len, source: why.into() };
        if !(SHORTEST..=FRAME_LEN).contains(&len) {
            return Err(trial(format!("expected {SHORTEST} to {FRAME_LEN} bytes")));
        }
        let index = std::ffi::CString::new(interface).ok().and_then(|name| sys::interface_index(&name));
        let no_interface = || Error::NoInterface { program: NAME, interface: interface.to_owned() };
        let index = index.ok_or_else(no_interface)?;
        let mut object = attach::load_xdp(NAME, &mut EbpfLoader::new(), object!("live"))?;
        send_by(&mut object, index)?;
        let tally = attach::raw_tracepoint(TALLY, &mut object, TRACEPOINT)?;
        let held = Held::new(&mut object)?;
        let control = SharedArray::map(&object, NAME, "control", 1, WORDS)?;
        let frames = SharedBytes::map(&object, NAME, "frames", FRAMES * FRAME_LEN)?;
        let lens = SharedArray::map(&object, NAME, "lens", 1, FRAMES)?;
        let stride = len.next_multiple_of(ALIGN);
        control.element(0)[STRIDE].store(stride as u64, Release);
        let blank = vec![0; len + 1].into();
        let (written, offered) = (0, 0);
        Ok(Self {
            control,
            frames,
            lens,
            stride,
            most: len,
            longest: SHORTEST,
            written,
            offered,
            blank,
            object,
            _tally: tally,
            _held: held,
        })
    }

    /// Number of waiting frames.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.written - self.offered
    }

    /// Is the buffer full until the waiting frames are sent?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.written == FRAMES
    }

    /// The next frame, of `len` bytes, to be filled in completely; it is waiting from now on. `None` if there is no
    /// room, or the length is invalid.
    #[inline]
    pub fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.is_full() || !(SHORTEST..=self.most).contains(&len) {
            return None;
        }
        let (at, start) = (self.written, self.written * self.stride);
        self.lens.element(0)[at].store(len as u64, Relaxed);
        self.longest = self.longest.max(len);
        self.written += 1;
        self.frames.bytes_mut().get_mut(start..start + len)
    }

    /// The waiting frames, in order.
    pub fn iter(&mut self) -> impl Iterator<Item = &[u8]> {
        let lens = &self.lens.element(0)[self.offered..self.written];
        let bytes = &self.frames.bytes_mut()[self.offered * self.stride..self.written * self.stride];
        bytes.chunks(self.stride).zip(lens).map(|(frame, len)| &frame[..len.load(Relaxed) as usize])
    }

    /// Discards the waiting frames.
    pub fn clear(&mut self) {
        (self.written, self.offered) = (0, 0);
        self.longest = SHORTEST;
    }

    /// Offers the waiting frames to the driver. A signal may interrupt it ([`io::ErrorKind::Interrupted`]); the next
    /// call continues with the rest.
    pub fn send(&mut self) -> Offered {
        let words = self.control.element(0);
        words[NEXT].store(self.offered as u64, Release);
        words[END].store(self.written as u64, Release);
        words[INITIAL].store(self.initial() as u64, Release);
        let before = words[SENT].load(Acquire);
        let failed = self.run().err();
        // A later run finds nothing to send, and no pending frames of this call.
        let next = words[NEXT].load(Acquire) as usize;
        words[END].store(0, Release);
        words[OPEN].store(0, Release);
        let frames = next.clamp(self.offered, self.written) - self.offered;
        let taken = (words[SENT].load(Acquire) - before) as usize;
        if frames > 0 && taken == 0 {
            let none =
                "the driver accepts no frames from XDP: it cannot, its link is down, or its ring is full";
            return Offered { frames: 0, taken: 0, failed: Some(io::Error::other(none)) };
        }
        self.offered += frames;
        if self.offered == self.written {
            self.clear();
        }
        Offered { frames, taken: taken.min(frames), failed }
    }

    /// What each page has at first: one byte more than the longest frame, so that the program moves the end of every
    /// page.
    fn initial(&self) -> usize {
        self.longest + 1
    }

    fn run(&self) -> io::Result<()> {
        let program: &Xdp = self
            .object
            .program(NAME)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| io::Error::other("the object has no program of that name"))?;
        let options = TestRunOptions {
            data_in: Some(&self.blank[..self.initial()]),
            repeat: self.waiting() as u32,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::default()
        };
        program.test_run(options).map(|_| ()).map_err(|error| match attach::errno(&error) {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::other(error.to_string()),
        })
    }
}

/// Makes the program send on the interface with this index in the calling thread's network namespace, wherever it is
/// called.
fn send_by(object: &mut Ebpf, interface: u32) -> Result<(), Error> {
    let refused = |error: &dyn std::error::Error| {
        let why = format!("cannot set interface {interface}: {error}");
        Error::Load { program: NAME, source: why.into() }
    };
    let map = object.map_mut("interface");
    let missing = || Error::Load { program: NAME, source: "the object has no map of interfaces".into() };
    let mut map = DevMap::try_from(map.ok_or_else(missing)?).map_err(|error| refused(&error))?;
    map.set(0, interface, None, 0).map_err(|error| refused(&error))
}

impl Held {
    /// On a separate thread: the calling thread's namespace does not change.
    fn new(object: &mut Ebpf) -> Result<Self, Error> {
        let no_namespace = |source: io::Error| Error::Namespace { program: NAME, source };
        let attach = || {
            sys::enter_new_network().map_err(no_namespace)?;
            let namespace = kernel::namespace("/proc/thread-self/ns/net").map_err(no_namespace)?;
            let link = attach::xdp_link(NAME, object, "lo", XdpMode::Skb)?;
            Ok(Self { _link: link, _namespace: namespace })
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, attach).map_err(no_namespace)?;
            thread.join().unwrap_or_else(|_| Err(no_namespace(io::Error::other("its thread ended early"))))
        })
    }
}

#[cfg(test)]
mod tests;
