//! Netlink as this crate speaks it: attributes, numbers and a socket. What the messages mean is in `kernel`.
//!
//! ```text
//!  kernel/*.rs   what is asked, and what the answer means
//!      |
//!  numbers.rs    commands and attributes by their kernel names, checked against the running kernel by a test
//!  attribute.rs  type, length, value: read without trust, written without arithmetic
//!  socket.rs     one request and its answers: sequence, errors in words, interrupted dumps
//! ```
//!
//! The codec is our own, and small. `netlink-bindings`, the one crate that knows these families, numbers ethtool's
//! commands wrongly (it counts notifications) and cuts counters of type `uint` to 32 bits; `netlink-packet-route`
//! refuses a whole message for one attribute that it cannot read. Here an unknown attribute is passed over, and a
//! missing one is missing.

pub(crate) mod attribute;
pub(crate) mod numbers;
pub(crate) mod socket;

pub(crate) use attribute::{Attributes, Writer};
pub use socket::Refused;
pub(crate) use socket::{Answers, Netlink};
