//! The workspace's one netlink client: how udpath reads and changes the kernel's networking.
//!
//! ```text
//!  rtnetlink   diag      netfilter   audit     ethtool    netdev          a family each: messages as types
//!      |         |           |         |          \________/
//!      |         |           |         |           generic                families found by name
//!      |_________|___________|_________|______________|
//!      |                     |
//!  subscription           socket       notifications as they come; one request and its answers
//!      \_____________________/
//!       message, attribute             the codec
//!       numbers                        commands and attributes by the kernel's names
//!
//!  ioctl                               for settings that netlink lacks, on some kernels or on all
//! ```
//! What a family answers is decoded here, into types with the kernel's names ([`ethtool::channels::Channels`],
//! [`rtnetlink::Link`], [`netdev::Napi`]); what it means for a datagram is for the crates above.
//!
//! Commands and attributes are written as the kernel names them ([`numbers`]), so that its documentation is this
//! crate's too. Most reading needs no privilege; changes need CAP_NET_ADMIN over the network namespace, and nothing is
//! read back: the caller compares, because drivers round, and some accept a value and ignore it.
//!
//! The codec is our own, and small. `netlink-bindings`, the one crate that knows these families, misnumbers ethtool's
//! commands (it counts notifications) and truncates counters of type `uint` to 32 bits; `netlink-packet-route` rejects
//! a whole message for one attribute it cannot parse. Here an unknown attribute is skipped, and a missing one is
//! `None`.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod attribute;
pub mod audit;
pub mod diag;
mod error;
pub mod ethtool;
mod generic;
pub mod ioctl;
pub mod message;
pub mod netdev;
pub mod netfilter;
pub mod numbers;
pub mod rtnetlink;
mod socket;
pub mod subscription;
mod sys;

pub use attribute::{Attributes, Writer, number};
pub use audit::Audit;
pub use diag::SockDiag;
pub use error::Error;
pub use generic::{Generic, attributes};
pub use message::{Message, Messages, flag};
pub use netfilter::Nfnetlink;
pub use rtnetlink::Rtnetlink;
pub use socket::{Answers, Protocol, Socket};
pub use subscription::{Received, Subscription};
