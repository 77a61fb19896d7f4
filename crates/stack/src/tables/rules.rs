//! Whether IPv4 has rules of policy routing beside the three that every network namespace begins with.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

/// `RTM_GETRULE` and `RTM_NEWRULE` of linux/rtnetlink.h.
const GET_RULE: u16 = 34;
const NEW_RULE: u16 = 32;
/// `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const LIST: u16 = 0x301;
/// Bytes of a message's header, and of `struct fib_rule_hdr`, all of which are 0 but the family.
const HEADER: usize = 16;
const RULE: usize = 12;
/// The rules of a new namespace: for the tables local, main and default.
const USUAL: usize = 3;
/// Datagrams of an answer that are read: each has 30 rules or more.
const DATAGRAMS: usize = 64;

/// Whether the calling thread's network namespace has IPv4 rules (`ip rule`) other than the usual ones. Makes a socket and
/// asks the kernel: for once a second.
///
/// # Errors
/// The kernel does not answer as it should.
pub fn has_policy_rules() -> io::Result<bool> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // Connected to the kernel, other processes' sockets cannot send to this one.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let len = (HEADER + RULE) as u32;
    let mut request = len.to_ne_bytes().to_vec();
    request.extend([GET_RULE, LIST].into_iter().flat_map(u16::to_ne_bytes));
    request.resize(HEADER + RULE, 0);
    request[HEADER] = AddressFamily::INET.as_raw() as u8;
    rustix::io::retry_on_intr(|| send(&socket, &request, SendFlags::empty()))?;
    let mut rules = 0;
    let mut buffer = vec![0; 32 << 10];
    for _ in 0..DATAGRAMS {
        let (read, _) = rustix::io::retry_on_intr(|| recv(&socket, &mut *buffer, RecvFlags::empty()))?;
        let mut rest = &buffer[..read];
        while let Some((kind, behind)) = next(rest) {
            match kind {
                NEW_RULE => rules += 1,
                DONE => return Ok(rules != USUAL),
                ERROR => return Err(io::Error::other("the kernel refuses to list its rules")),
                _ => {}
            }
            rest = behind;
        }
    }
    // More than anybody's usual ones, at any rate.
    Ok(true)
}

/// The type of the first message, and what is behind it.
fn next(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let header = bytes.first_chunk::<HEADER>()?;
    let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    // Messages begin at multiples of four bytes.
    (len >= HEADER).then(|| (kind, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_one_by_one_and_never_for_ever() {
        let message = |len: u32, kind: u16, size: usize| {
            let mut message = [&len.to_ne_bytes()[..], &kind.to_ne_bytes()].concat();
            message.resize(size, 0);
            message
        };
        let two = [message(18, NEW_RULE, 20), message(16, DONE, 16)].concat();
        let (kind, rest) = next(&two).unwrap();
        assert_eq!((kind, rest.len()), (NEW_RULE, 16));
        let (kind, rest) = next(rest).unwrap();
        assert_eq!((kind, rest.len()), (DONE, 0));
        assert_eq!(next(rest), None);
        assert_eq!(next(&message(0, NEW_RULE, 16)), None, "a message has its header");
        assert_eq!(next(&message(999, NEW_RULE, 16)), Some((NEW_RULE, &[][..])));
    }

    #[test]
    fn the_kernel_answers() {
        has_policy_rules().unwrap();
    }
}
