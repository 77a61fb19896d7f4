//! What a device's driver can tell XDP programs of a frame: asked of the kernel's generic netlink family `netdev`.
//!
//! The kernel answers in `XDP_RX_METADATA_FEATURES` since Linux 6.7. The loaded program could not say it: where the driver
//! has nothing to tell, the kfunc is there and fails for every frame.

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NlasIterator};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

/// The controller's own number and the command that finds a family's (`linux/genetlink.h`).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command and attributes of the family (`linux/netdev.h`).
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const RX_METADATA_FEATURES: u16 = 5;
/// Bit of the features: `bpf_xdp_metadata_rx_hash` answers.
const HASH: u64 = 2;

/// Lengths of a netlink header, a generic one, and an attribute's, bytes.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
/// Room for an answer, bytes: a few dozen attributes of some bytes each. One that is cut is no answer.
const ANSWER: usize = 1 << 13;

/// Does the driver of the interface with number `index`, in the calling thread's network namespace, tell a frame's hash?
///
/// # Errors
/// The kernel has no such family, or does not know this of devices.
pub(crate) fn tells_rx_hash(index: u32) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = ask(&socket, CONTROLLER, GET_FAMILY, FAMILY_NAME, b"netdev\0")?;
    let family = attribute(&family, FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
    let family = family.ok_or_else(unknown)?;
    let device = ask(&socket, family, DEV_GET, IFINDEX, &index.to_ne_bytes())?;
    let features = attribute(&device, RX_METADATA_FEATURES)
        .and_then(|bits| Some(u64::from_ne_bytes(bits.try_into().ok()?)))
        .ok_or_else(unknown)?;
    Ok(features & HASH != 0)
}

fn unknown() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// The payload of the answer to a command with one attribute.
fn ask(socket: &Socket, family: u16, command: u8, attribute: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let used = ATTRIBUTE + value.len();
    let len = HEADER + GENERIC + used.next_multiple_of(4);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender: one question at a time, on a socket of its own.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((used as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(len, 0);
    socket.send(&message, 0)?;
    let mut answer = Vec::with_capacity(ANSWER);
    // The kernel answers within the send call: nothing to wait for.
    socket.recv(&mut answer, libc::MSG_DONTWAIT)?;
    let answer = NetlinkBuffer::new_checked(answer.as_slice()).map_err(io::Error::other)?;
    let payload = answer.payload();
    if answer.message_type() == NLMSG_ERROR {
        let code = payload.first_chunk().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code));
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    Ok(payload.get(GENERIC..).unwrap_or_default().to_vec())
}

/// The value of the first attribute of this kind.
fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == kind)
        .map(|attribute| attribute.value().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_tells_no_hash_and_what_is_missing_is_an_error() {
        let index = crate::sys::interface_index(c"lo").expect("there is a loopback");
        assert!(!tells_rx_hash(index).expect("the kernel has the family (Linux 6.7)"));
        let error = tells_rx_hash(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn attributes_that_are_cut_are_not_there() {
        let bytes = [8, 0, 5, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&bytes, 5), Some(vec![1, 2, 3, 4]));
        assert_eq!(attribute(&bytes, 6), None);
        for cut in 0..8 {
            assert_eq!(attribute(&bytes[..cut], 5), None);
        }
        assert_eq!(attribute(&[0; 8], 0), None, "shorter than its own header");
    }
}
