//! The State of a challenge: what the server must know when the answer comes, kept by the client.
//!
//! ```text
//! issued 4, seconds since boot | HMAC-MD5(key of this server; issued, client's address, user) 16
//! ```
//! So a flood of challenges takes no memory, every worker can check every answer, and a State is of no use to another
//! user or client, after a minute, or after a restart.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use hmac::{Hmac, Mac};
use md5::Md5;
use subtle::ConstantTimeEq;

use super::packet::DIGEST;
use super::secret::keyed;

/// Time to answer. Shorter: people are too slow to read a code from a device. Longer: one who sees a State has more
/// time.
const LIFETIME: u32 = 60;
/// Bytes of a State.
pub(super) const LEN: usize = 4 + DIGEST;

/// Issues and checks States.
#[derive(Clone)]
pub(super) struct Challenges(Hmac<Md5>);

impl Challenges {
    /// With a new key of 128 random bits: those of the standard library's hash, which come from the kernel.
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        let words: [u64; 8] = std::array::from_fn(|at| random.hash_one(at));
        Self(keyed(words.map(u64::to_ne_bytes).as_flattened()))
    }

    /// A State for `user` at `client`; `now` is the time since boot.
    pub(super) fn issue(&self, user: &[u8], client: IpAddr, now: Duration) -> [u8; LEN] {
        let issued = (now.as_secs() as u32).to_be_bytes();
        let mut state = [0; LEN];
        let (time, digest) = state.split_at_mut(issued.len());
        time.copy_from_slice(&issued);
        digest.copy_from_slice(&self.digest(issued, user, client));
        state
    }

    /// Whether `state` was issued to this user and client within [`LIFETIME`].
    pub(super) fn accepts(&self, state: &[u8], user: &[u8], client: IpAddr, now: Duration) -> bool {
        let Some((issued, digest)) = state.split_first_chunk::<4>() else { return false };
        let age = (now.as_secs() as u32).wrapping_sub(u32::from_be_bytes(*issued));
        let right = self.digest(*issued, user, client).ct_eq(digest);
        // A burst's clock may be a moment behind that of another worker.
        bool::from(right) && (age <= LIFETIME || age == u32::MAX)
    }

    fn digest(&self, issued: [u8; 4], user: &[u8], client: IpAddr) -> [u8; DIGEST] {
        let address = match client {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mac = self.0.clone().chain_update(issued).chain_update(address.octets());
        mac.chain_update(user).finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Challenges")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_for_one_user_client_and_minute() {
        let challenges = Challenges::new();
        let (client, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let at = Duration::from_secs;
        let state = challenges.issue(b"bob", client, at(100));
        for (now, valid) in [(100, true), (160, true), (161, false), (99, true), (98, false)] {
            assert_eq!(challenges.accepts(&state, b"bob", client, at(now)), valid, "{now}");
        }
        assert!(!challenges.accepts(&state, b"bo", client, at(100)));
        assert!(!challenges.accepts(&state, b"bob", other, at(100)));
        assert!(!Challenges::new().accepts(&state, b"bob", client, at(100)), "after a restart");
        for bit in 0..LEN * 8 {
            let mut forged = state;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!challenges.accepts(&forged, b"bob", client, at(100)), "bit {bit}");
        }
        for len in [0, 3, 4, LEN - 1] {
            assert!(!challenges.accepts(&state[..len], b"bob", client, at(100)), "{len}");
        }
        assert!(!challenges.accepts(&[&state[..], &[0]].concat(), b"bob", client, at(100)));
    }
}
