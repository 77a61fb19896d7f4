//! What the datapath must know of the kernel's control plane: interfaces, local addresses, neighbours and routes, as
//! immutable tables under epochs.

mod addresses;
mod hash;
mod interfaces;
mod neighbours;

pub use addresses::{LocalAddress, LocalAddresses};
pub use interfaces::{Interface, Interfaces};
pub use neighbours::{Neighbour, Neighbours};
