//! What the server looks at in a request: one pass over its attributes.

use super::packet::{DIGEST, Kind, Packet};

/// The attributes of a request that decide about it. What may occur once, occurs at most once (RFC 2865, 5.44).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attributes<'a> {
    pub(super) user_name: Option<&'a [u8]>,
    pub(super) user_password: Option<&'a [u8]>,
    pub(super) chap_password: Option<&'a [u8]>,
    pub(super) chap_challenge: Option<&'a [u8]>,
    pub(super) state: Option<&'a [u8]>,
    pub(super) status_type: Option<&'a [u8]>,
    /// Whether there is a part of an EAP packet.
    pub(super) eap: bool,
    /// Whether there is a Proxy-State.
    pub(super) proxied: bool,
    /// Where the value of the Message-Authenticator begins in the packet.
    pub(super) message_authenticator: Option<usize>,
}

impl<'a> Attributes<'a> {
    /// Those of `packet`; `None` if one occurs too often, or has a length that it cannot have.
    #[inline]
    pub(super) fn of(packet: &Packet<'a>) -> Option<Self> {
        let mut found = Self::default();
        for attribute in packet.attributes() {
            let place = match attribute.kind {
                Kind::USER_NAME => &mut found.user_name,
                Kind::USER_PASSWORD => &mut found.user_password,
                Kind::CHAP_PASSWORD => &mut found.chap_password,
                Kind::CHAP_CHALLENGE => &mut found.chap_challenge,
                Kind::STATE => &mut found.state,
                Kind::ACCT_STATUS_TYPE => &mut found.status_type,
                Kind::MESSAGE_AUTHENTICATOR => {
                    if attribute.value.len() != DIGEST || found.message_authenticator.is_some() {
                        return None;
                    }
                    found.message_authenticator = Some(attribute.at);
                    continue;
                }
                Kind::EAP_MESSAGE => {
                    found.eap = true;
                    continue;
                }
                Kind::PROXY_STATE => {
                    found.proxied = true;
                    continue;
                }
                _ => continue,
            };
            if place.replace(attribute.value).is_some() {
                return None;
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Code, Writer};
    use super::*;

    fn packet(attributes: &[(Kind, &[u8])]) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let mut writer = Writer::new(&mut buffer, Code::ACCESS_REQUEST, 1, &[2; 16]).unwrap();
        for (kind, value) in attributes {
            writer.attribute(*kind, value).unwrap();
        }
        writer.finish().unwrap().to_vec()
    }

    #[test]
    fn what_decides_is_found() {
        let bytes = packet(&[
            (Kind::PROXY_STATE, b"1"),
            (Kind::USER_NAME, b"bob"),
            (Kind(26), b"vendor"),
            (Kind::MESSAGE_AUTHENTICATOR, &[0; 16]),
            (Kind::STATE, b"s"),
            (Kind::PROXY_STATE, b"2"),
        ]);
        let found = Attributes::of(&Packet::decode(&bytes).unwrap()).unwrap();
        assert_eq!((found.user_name, found.state), (Some(&b"bob"[..]), Some(&b"s"[..])));
        assert!(found.proxied && !found.eap && found.user_password.is_none());
        assert_eq!(found.message_authenticator, Some(20 + 3 + 5 + 8 + 2));
    }

    #[test]
    fn repeated_and_impossible_attributes_are_rejected() {
        for kind in [1, 2, 3, 24, 40, 60, 80] {
            let value = &[0; 16][..];
            let once = packet(&[(Kind(kind), value)]);
            assert!(Attributes::of(&Packet::decode(&once).unwrap()).is_some(), "{kind}");
            let twice = packet(&[(Kind(kind), value), (Kind(kind), value)]);
            assert!(Attributes::of(&Packet::decode(&twice).unwrap()).is_none(), "{kind}");
        }
        for len in [0, 15, 17] {
            let wrong = packet(&[(Kind::MESSAGE_AUTHENTICATOR, &vec![0; len])]);
            assert!(Attributes::of(&Packet::decode(&wrong).unwrap()).is_none(), "{len}");
        }
    }
}
