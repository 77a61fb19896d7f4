//! `getifaddrs(3)` as a list, and the clock the kernel's program uses.
#![allow(unsafe_code, reason = "getifaddrs hands out a C list of C structures")]

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr;

/// Name and address of every address of every interface in the calling thread's network namespace.
pub(super) fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `head` is a valid place for the list's address.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: `at` is a node of the list that getifaddrs made; the list lives until it is freed below.
        let node = unsafe { &*at };
        if let Some(address) = address_of(node.ifa_addr) {
            // SAFETY: every node has a name, a C string of the same lifetime.
            let name = unsafe { CStr::from_ptr(node.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
        at = node.ifa_next;
    }
    // SAFETY: frees the list of the successful call above, once; nothing borrows from it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// The IP address in a socket address of the list; none for a missing one or another family.
fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so it is a socket address, and every one of them begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is an IPv4 socket address.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is an IPv6 socket address.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}
