//! The two socket options that read a table of ip_tables through a raw socket.
#![allow(unsafe_code, reason = "IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto};

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES` of linux/netfilter_ipv4/ip_tables.h; ip6_tables uses the same values.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// Bytes of a table's name (`XT_TABLE_MAXNAMELEN`).
const NAME: usize = 32;
/// `struct ipt_getinfo`: name, hooks, their offsets, the offsets of their policies, number of entries, their size.
const INFO: usize = NAME + 4 * (1 + 5 + 5 + 1 + 1);
/// Bytes before the entries of `struct ipt_get_entries`: name, size, and padding to eight.
const BEFORE: usize = 40;
/// Largest table that is read, in bytes. Larger ones are not hand-written; reading them would only cost memory.
const LARGEST: usize = 64 << 20;
/// Attempts to read a table that other programs change at the same time.
const TRIES: u32 = 5;

/// A table's entries in the kernel's form.
pub(super) struct Entries {
    /// A bit per hook.
    pub(super) hooks: u32,
    /// By hook: the offset of its chain.
    pub(super) begins: [u32; 5],
    /// By hook: the offset of its policy entry.
    pub(super) policies: [u32; 5],
    pub(super) entries: Vec<u8>,
}

/// Reads a table. Needs CAP_NET_ADMIN (and CAP_NET_RAW for the socket).
pub(super) fn entries(ipv6: bool, table: &str) -> io::Result<Entries> {
    let (family, level) = match ipv6 {
        false => (AddressFamily::INET, libc::IPPROTO_IP),
        true => (AddressFamily::INET6, libc::IPPROTO_IPV6),
    };
    let raw: Option<Protocol> = Some(ipproto::RAW);
    let socket = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, raw)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut info = named(table, INFO)?;
        get(&socket, level, GET_INFO, &mut info)?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| info[NAME + 4 * at + i]));
        let size = word(12) as usize;
        if size > LARGEST {
            return Err(io::Error::other(format!("{size} bytes of entries, over {LARGEST}")));
        }
        let mut answer = named(table, BEFORE + size)?;
        answer[NAME..NAME + 4].copy_from_slice(&word(12).to_ne_bytes());
        match get(&socket, level, GET_ENTRIES, &mut answer) {
            // The table's size has changed since.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES => {}
            Err(error) => return Err(error),
            Ok(()) => {
                return Ok(Entries {
                    hooks: word(0),
                    begins: std::array::from_fn(|hook| word(1 + hook)),
                    policies: std::array::from_fn(|hook| word(6 + hook)),
                    entries: answer.split_off(BEFORE),
                });
            }
        }
    }
}

/// A structure that begins with the table's name.
fn named(table: &str, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    match bytes.get_mut(..table.len()) {
        Some(place) if table.len() < NAME => place.copy_from_slice(table.as_bytes()),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(bytes)
}

fn get(socket: &impl AsFd, level: i32, option: i32, bytes: &mut [u8]) -> io::Result<()> {
    let mut len = libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: `bytes` is `len` readable and writable bytes, and the kernel reads and writes at most that many.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, bytes.as_mut_ptr().cast(), &raw mut len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
