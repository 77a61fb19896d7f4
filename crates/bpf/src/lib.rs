//! The compiled BPF programs behind typed loaders: the only crate that talks to the bpf system call.
//!
//! The C sources are in `bpf/` at the top of the repository, one job per file; `build.rs` compiles them and they are
//! included here. Each has one type that loads, attaches and reads it:
//!
//! | type | program | what it does |
//! |---|---|---|
//! | [`Pass`] | XDP | lets everything through: switches NAPI on at a veth's end |
//! | [`ClosedLoop`] | XDP | turns each reply into the next request: the generator in the kernel |
//! | [`LiveFrames`] | XDP | sends prepared frames in bulks, without an skb for each |
//! | [`Take`] | XDP | hands UDP frames that the user-space datapath can answer to AF_XDP sockets |
//! | [`Watch`] | socket filter | counts which queue, hash and CPU the datagrams of each flow came by |
//! | [`reuseport_choosers`] | iterator over UDP sockets | says which program chooses in each reuseport group |
//! | those of [`trace`] | tracepoints | count what the kernel tells of locks, drops, softirqs and sockets' queues |
//!
//! Every attachment is a bpf_link held by a file descriptor: when the value is dropped, or the process dies in whatever
//! way, the kernel detaches the program. (A process that is being started meanwhile has copies of all descriptors until
//! its own program runs; the kernel detaches then.) Nothing is pinned. All of it acts on the interface of the given name
//! in the calling thread's network namespace, and needs `CAP_BPF` and `CAP_NET_ADMIN` in the initial user namespace.

pub mod attach;
mod closed_loop;
mod error;
mod holder;
mod live;
mod netdev;
mod pass;
mod reuseport;
mod rx_hash;
mod shared_array;
mod sys;
mod take;
pub mod trace;
mod watch;

pub use closed_loop::{
    BUCKETS, ClosedLoop, Counters, HEADER, Layout, MAGIC, MIN_SIZE, Memory, Slot, bucket_value, header_check,
};
pub use error::Error;
pub use live::{LiveFrames, Offered};
pub use pass::{Pass, PassProgram};
pub use reuseport::{Chooser, reuseport_choosers};
pub use rx_hash::{NOTE, RxHash, read_note};
pub use shared_array::SharedArray;
pub use take::{AttachMode, Network, Outcome, Outcomes, Sources, Take, TakeLayout};
pub use watch::{PassedOver, Watch, Way};
