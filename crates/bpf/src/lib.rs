//! The compiled BPF programs behind typed loaders: the only crate that talks to the bpf system call.
//!
//! The C sources are in `bpf/` at the top of the repository, one file per task; `build.rs` compiles them and they are
//! embedded here. Each has one type that loads, attaches and reads it:
//!
//! | type | program | purpose |
//! |---|---|---|
//! | [`Pass`] | XDP | passes every packet: enables NAPI on one end of a veth pair |
//! | [`ClosedLoop`] | XDP | turns each reply into the next request: the in-kernel load generator (two programs) |
//! | [`LiveFrames`] | XDP | sends prepared frames in bulk, without an skb for each |
//! | [`Take`] | XDP | hands UDP frames that the user-space datapath can answer to AF_XDP sockets |
//! | [`Policies`] | bind, connect and create hooks of cgroups | set options of the UDP sockets of unmodified programs |
//! | [`Watch`] | socket filter | counts the queue, hash and CPU of the datagrams of each flow |
//! | [`Selection`] | reuseport groups | chooses the socket for each datagram |
//! | [`ReuseportIterator`] | iterator over UDP sockets | reports the sockets of each reuseport group in order, and which program selects |
//! | those of [`trace`] | tracepoints | count lock waits, drops, softirqs and socket queue delays |
//!
//! Every attachment is a bpf_link held by a file descriptor: when the value is dropped, or the process dies for any
//! reason, the kernel detaches the program. (A child between fork and exec has copies of all descriptors; the kernel
//! detaches after the exec.) Two outlive the process: [`Policies`] are pinned, and act on the whole machine; a
//! [`Selection`] belongs to its reuseport group. Everything else acts on the named interface in the calling thread's
//! network namespace. All of it needs `CAP_BPF` and `CAP_NET_ADMIN` in the initial user namespace.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod attach;
mod closed_loop;
mod error;
mod holder;
mod ids;
mod live;
mod netdev;
mod pass;
mod policy;
mod reuseport;
mod rx_hash;
mod selection;
mod shared_array;
mod sys;
mod take;
pub mod trace;
mod watch;

pub use closed_loop::{
    BUCKETS, ClosedLoop, Counters, Declared, Element, HEADER, Id, Judged, Layout, MAGIC, MAX_ELEMENTS,
    MAX_REQUEST_LEN, MAX_REQUESTS, MAX_RULES, MAX_SAMPLE_LEN, MIN_SIZE, Memory, ReplyRules, RequestTable,
    Requests, Rule, Sample, Samples, Slot, TableError, Verdict, bucket_value, header_check,
};
pub use error::{Cause, Error};
pub use holder::{detach_leftover, interfaces_with};
pub use ids::program_ids;
pub use live::{LiveFrames, Offered};
pub use pass::{Pass, PassProgram};
pub use policy::{
    Outcome as PolicyOutcome, Policies, Policy, PolicyOption, PolicyTarget, Program as CgroupProgram,
    programs_at,
};
pub use reuseport::{Chooser, GroupMember, ReuseportGroup, ReuseportIterator};
pub use rx_hash::{NOTE, RxHash, read_note};
pub use selection::{
    Installed, MAX_FIELD, MAX_PAYLOAD, MAX_SLOTS, Rule as SelectionRule, Selection,
    detach as detach_selection, grace_period,
};
pub use shared_array::SharedArray;
pub use take::{AttachMode, Network, Outcome, Outcomes, Sources, Take, TakeLayout};
pub use watch::{PassedOver, Watch, Way};
