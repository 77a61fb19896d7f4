//! Arrays that the kernel and Rust reach through the same raw pointers: for the headers, names, control messages and io
//! vectors of `recvmmsg` and `sendmmsg`.
//!
//! The headers hold pointers into the other arrays. In a `Vec`, each `&mut` to such an array, or a move of the `Vec`,
//! would end the validity of the pointers taken before. Here both sides go through pointers that come from one
//! allocation: a reference lasts for one access, or borrows the whole array, and never outlives a call to the kernel.

mod sys;

pub use sys::Slots;
