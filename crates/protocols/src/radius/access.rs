//! May this user in? An Access-Request to its verdict.
//!
//! ```text
//! password, no State ─▸ right? ─▸ Accept, or Challenge with a State if the user has a code
//! code, with State ───▸ State ours, of this user and client? code right? ─▸ Accept
//! everything else ────▸ Reject
//! ```
//! Whether the user exists and the password is right, must not show in the time it takes: an unknown user's is compared
//! too.

use subtle::{Choice, ConstantTimeEq};

use super::attributes::Attributes;
use super::packet::{DIGEST, Packet};
use super::secret::{MAX_PASSWORD, Secret, chap};
use super::users::{User, Verdict};

/// How a user proves to know the password.
#[derive(Debug, Clone, Copy)]
pub(super) enum Proof<'a> {
    /// The password itself, with zeros after its end.
    Pap([u8; MAX_PASSWORD]),
    /// A digest of the identifier, the password and the challenge.
    Chap { identifier: u8, digest: &'a [u8; DIGEST], challenge: &'a [u8] },
    /// By EAP, which this server does not support: the request is rejected (RFC 3579, 2.2).
    Eap,
}

impl<'a> Proof<'a> {
    /// That of a request; `None` if there is none or more than one (RFC 2865, 4.1), or its length is wrong.
    #[inline]
    pub(super) fn of(packet: &Packet<'a>, attributes: &Attributes<'a>, secret: &Secret) -> Option<Self> {
        match (attributes.user_password, attributes.chap_password, attributes.eap) {
            (Some(hidden), None, false) => secret.reveal(hidden, packet.authenticator()).map(Self::Pap),
            (None, Some(sent), false) => {
                let (&identifier, digest) = sent.split_first()?;
                let challenge = attributes.chap_challenge.unwrap_or(packet.authenticator());
                Some(Self::Chap { identifier, digest: digest.try_into().ok()?, challenge })
            }
            (None, None, true) => Some(Self::Eap),
            _ => None,
        }
    }

    /// Whether it proves `password`, at most 128 bytes. In constant time.
    fn proves(&self, password: &[u8]) -> Choice {
        match self {
            Self::Pap(sent) => {
                let mut expected = [0; MAX_PASSWORD];
                expected.iter_mut().zip(password).for_each(|(to, from)| *to = *from);
                sent.ct_eq(&expected)
            }
            Self::Chap { identifier, digest, challenge } => {
                chap(*identifier, password, challenge).ct_eq(*digest)
            }
            Self::Eap => Choice::from(0),
        }
    }
}

/// The answer to an Access-Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// With these attributes.
    Accept(&'a [u8]),
    Reject,
    Challenge,
}

/// Decides on `user`, who is unknown if `None`. `answers`: whether the request has a State of this user's challenge;
/// `None` if it has no State.
#[inline]
pub(super) fn decide<'a>(user: Option<&'a User>, proof: &Proof<'_>, answers: Option<bool>) -> Answer<'a> {
    let Some(user) = user else {
        // The time is what counts.
        let _ = std::hint::black_box(proof.proves(b"unknown user"));
        return Answer::Reject;
    };
    let (expected, then, may) = match (&user.verdict, answers) {
        (Verdict::Accept, _) => (&user.password, Answer::Accept(&user.attributes), true),
        (Verdict::Challenge { .. }, None) => (&user.password, Answer::Challenge, true),
        (Verdict::Challenge { code }, Some(ours)) => (code, Answer::Accept(&user.attributes), ours),
        (Verdict::Reject, _) => (&user.password, Answer::Reject, false),
    };
    if bool::from(proof.proves(expected) & Choice::from(u8::from(may))) { then } else { Answer::Reject }
}

#[cfg(test)]
mod tests {
    use super::super::users::Users;
    use super::*;

    fn pap(password: &str) -> Proof<'static> {
        let mut sent = [0; MAX_PASSWORD];
        sent[..password.len()].copy_from_slice(password.as_bytes());
        Proof::Pap(sent)
    }

    #[test]
    fn each_kind_of_user_has_its_verdict() {
        let text = b"bob Cleartext-Password := hello\n Class = x\ncarol Cleartext-Password := hello, One-Time-Code := 42\n\
                     \tClass = y\nmallory Auth-Type := Reject";
        let users = Users::parse(text).unwrap();
        let ask = |name: &[u8], password, answers| decide(users.find(name), &pap(password), answers);
        let accept = |class| match class {
            "x" => Answer::Accept(b"\x19\x03x"),
            _ => Answer::Accept(b"\x19\x03y"),
        };
        assert_eq!(ask(b"bob", "hello", None), accept("x"));
        assert_eq!(ask(b"bob", "hello", Some(false)), accept("x"), "a State that is not for this server");
        for wrong in ["", "hell", "hellO", "hello "] {
            assert_eq!(ask(b"bob", wrong, None), Answer::Reject, "{wrong:?}");
        }
        assert_eq!(ask(b"carol", "hello", None), Answer::Challenge);
        assert_eq!(ask(b"carol", "42", None), Answer::Reject);
        assert_eq!(ask(b"carol", "42", Some(true)), accept("y"));
        assert_eq!(ask(b"carol", "42", Some(false)), Answer::Reject);
        assert_eq!(ask(b"carol", "hello", Some(true)), Answer::Reject);
        for password in ["", "hello"] {
            assert_eq!(ask(b"mallory", password, None), Answer::Reject);
            assert_eq!(ask(b"unknown user", password, None), Answer::Reject);
        }
        assert_eq!(ask(b"nobody", "unknown user", None), Answer::Reject);
        assert_eq!(decide(users.find(b"bob"), &Proof::Eap, None), Answer::Reject);
    }

    #[test]
    fn chap_proves_the_password_with_either_challenge() {
        let users = Users::parse(b"bob Cleartext-Password := hello").unwrap();
        let digest = chap(7, b"hello", b"challenge");
        let proof = |identifier, challenge| Proof::Chap { identifier, digest: &digest, challenge };
        let accept = Answer::Accept(&[]);
        assert_eq!(decide(users.find(b"bob"), &proof(7, b"challenge"), None), accept);
        assert_eq!(decide(users.find(b"bob"), &proof(8, b"challenge"), None), Answer::Reject);
        assert_eq!(decide(users.find(b"bob"), &proof(7, b"challengf"), None), Answer::Reject);
    }
}
