//! What the datapath must know of the kernel's control plane: interfaces, local addresses, neighbours and routes, as
//! immutable tables under epochs.

mod addresses;
mod hash;
mod interfaces;
mod neighbours;
mod path;
mod prefixes;
mod routes;

pub use addresses::{LocalAddress, LocalAddresses};
pub use interfaces::{Interface, Interfaces};
pub use neighbours::{Neighbour, Neighbours};
pub use path::{NoPath, Path, View};
pub use routes::{Hop, Route, Routes};
