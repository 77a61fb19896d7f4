//! The Toeplitz hash of network cards, for any key.
//!
//! The key is a string of bits; each set bit `i` of the input XORs the 32 bits of the key that start at bit `i` into
//! the hash:
//!
//! ```text
//! key    0110 1101 0101 1010 0101 0110 ...       input bit 0 set: ^ key[0..32]
//!        '------ window of input bit 0           input bit 1 set: ^ key[1..33]
//!         '----- window of input bit 1           ...
//! ```
//!
//! The hash is linear over XOR, so the contribution of a whole byte at a given position can be looked up:
//! [`Toeplitz`] holds 256 words for each of the 36 positions. That is 12 lookups for IPv4 with ports (12 KiB of
//! tables touched) and 36 for IPv6. [`Key::hash_bitwise`] is the definition itself, slow and simple; the tables are
//! tested against it.
//!
//! Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash calculation"; the vectors of the latter are
//! in `tests/it/toeplitz.rs`.

mod input;
mod key;

pub use input::{Fields, Input, Transform};
pub use key::{Key, KeyError};

use crate::flow::{Addresses, Flow};

/// Length of the longest input, bytes: two IPv6 addresses and two ports.
const PLACES: usize = Input::MAX_LEN;

/// The contribution of one input byte to the hash, by its value.
type Place = [u32; 256];

/// A key prepared for hashing. Immutable, so threads can share one; 36 KiB on the heap.
#[derive(Debug, Clone)]
pub struct Toeplitz {
    places: Box<[Place; PLACES]>,
    key: Key,
}

impl Toeplitz {
    /// Builds the tables of a key: 9,216 words, some ten microseconds.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let places = (0..PLACES).map(|at| place(&key, at)).collect::<Vec<_>>().into_boxed_slice();
        match places.try_into() {
            Ok(places) => Self { places, key },
            Err(_) => unreachable!("collected from 0..PLACES"),
        }
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The hash of a flow as a network card computes it.
    #[must_use]
    #[inline]
    pub fn hash(&self, flow: &Flow, fields: Fields, transform: Transform) -> u32 {
        if transform != Transform::None {
            return self.hash_input(&Input::new(flow, fields, transform));
        }
        let ports = match fields {
            Fields::Addresses => None,
            Fields::AddressesPorts => Some((flow.source_port, flow.destination_port)),
        };
        match flow.addresses {
            Addresses::V4 { source, destination } => self.ipv4(source.octets(), destination.octets(), ports),
            Addresses::V6 { source, destination } => self.ipv6(source.octets(), destination.octets(), ports),
        }
    }

    /// The hash of an IPv4 packet; addresses in network order, ports (source, destination) as numbers.
    #[must_use]
    #[inline]
    pub fn ipv4(&self, source: [u8; 4], destination: [u8; 4], ports: Option<(u16, u16)>) -> u32 {
        let addresses = self.at::<0, 4>(source) ^ self.at::<4, 4>(destination);
        match ports {
            None => addresses,
            Some((from, to)) => {
                addresses ^ self.at::<8, 2>(from.to_be_bytes()) ^ self.at::<10, 2>(to.to_be_bytes())
            }
        }
    }

    /// The hash of an IPv6 packet; addresses in network order, ports (source, destination) as numbers.
    #[must_use]
    #[inline]
    pub fn ipv6(&self, source: [u8; 16], destination: [u8; 16], ports: Option<(u16, u16)>) -> u32 {
        let addresses = self.at::<0, 16>(source) ^ self.at::<16, 16>(destination);
        match ports {
            None => addresses,
            Some((from, to)) => {
                addresses ^ self.at::<32, 2>(from.to_be_bytes()) ^ self.at::<34, 2>(to.to_be_bytes())
            }
        }
    }

    /// The hash of any input.
    #[must_use]
    pub fn hash_input(&self, input: &Input) -> u32 {
        let added = self.places.iter().zip(input.bytes()).map(|(place, &byte)| place[usize::from(byte)]);
        added.fold(0, |hash, word| hash ^ word)
    }

    /// The contribution of `N` bytes from position `AT` on. Both are constants so that no bounds check is needed.
    #[inline]
    fn at<const AT: usize, const N: usize>(&self, bytes: [u8; N]) -> u32 {
        let mut hash = 0;
        for (offset, byte) in bytes.into_iter().enumerate() {
            hash ^= self.places[AT + offset][usize::from(byte)];
        }
        hash
    }
}

/// The contribution of a byte at position `at`, for each value: the XOR of the contributions of its bits.
fn place(key: &Key, at: usize) -> Place {
    // By bit, the lowest first; the highest is the first on the wire.
    let bits: [u32; 8] = std::array::from_fn(|bit| key.window(at * 8 + (7 - bit)));
    let mut place = [0; 256];
    for value in 1..256_usize {
        place[value] = place[value & (value - 1)] ^ bits[value.trailing_zeros() as usize];
    }
    place
}
