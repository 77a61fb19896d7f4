//! The options a server set on its sockets. The kernel reports them only to a holder of the socket.
//!
//! sock_diag and procfs report neither whether a socket shares its port, nor which CPU it takes datagrams from, nor
//! what it requests for each packet. So the descriptor is duplicated while the options are read (see the module's
//! header: a duplicate is never kept). This costs some 30 system calls per socket and touches the process, so it is
//! done only for the sockets requested, not for all of a machine's.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use error_reporter::Report;

use super::held::{Process, SocketId};
use super::{Error, sys};
use crate::client::sockets::{Socket, SocketOptions};
use crate::sockets::Sockets;
use crate::{Absence, Missing, Provenance};

/// Options of asm-generic/socket.h and linux/udp.h that the libc crate lacks, or names differently between
/// architectures.
const SO_INCOMING_NAPI_ID: libc::c_int = 56;
const SO_BUF_LOCK: libc::c_int = 72;
const UDP_ENCAP: libc::c_int = 100;
/// Bits of `SO_BUF_LOCK`: the program set the buffer size, and the kernel does not change it.
const RECEIVE_BUFFER_SET: libc::c_int = 2;
/// Names of `SO_TIMESTAMP` and its variants: the original option, then the one with 64-bit times.
const STAMPS: [(&str, [libc::c_int; 2]); 3] =
    [("SO_TIMESTAMP", [29, 63]), ("SO_TIMESTAMPNS", [35, 64]), ("SO_TIMESTAMPING", [37, 65])];

/// Reads the options of the sockets that are `wanted` into the list. Sockets of other users' processes need a
/// capability; what cannot be read is noted.
pub fn look_closer(sockets: &mut Sockets, wanted: impl Fn(&Socket) -> bool, missing: &mut Vec<Missing>) {
    let mut of: BTreeMap<u32, Vec<SocketId>> = BTreeMap::new();
    for socket in sockets.list.iter().filter(|socket| wanted(socket)) {
        if let (Some(owner), Some(cookie)) = (socket.owners.first(), socket.cookie) {
            of.entry(owner.pid).or_default().push(SocketId { inode: socket.inode, cookie });
        }
    }
    for (pid, ids) in of {
        match options(pid, &ids) {
            Ok(found) => {
                for (id, options) in found {
                    let is =
                        |socket: &&mut Socket| socket.inode == id.inode && socket.cookie == Some(id.cookie);
                    if let Some(socket) = sockets.list.iter_mut().find(is) {
                        socket.options = Some(options);
                    }
                }
            }
            // It has ended, and its sockets with it.
            Err(Error::NoProcess { .. }) => {}
            Err(error) => {
                let why = match error {
                    Error::NotPermitted { needs, .. } => Absence::NotPermitted { needs: needs.into() },
                    Error::OldKernel { .. } => Absence::NotSupported,
                    other => Absence::Failed(Report::new(other).to_string()),
                };
                let what = format!("options of the sockets of process {pid}");
                missing.push(Missing { what, from: Provenance::SocketOption("pidfd_getfd".into()), why });
            }
        }
    }
}

/// The options of these sockets of a process; closed ones are left out.
fn options(pid: u32, wanted: &[SocketId]) -> Result<Vec<(SocketId, SocketOptions)>, Error> {
    let process = Process::open(pid)?;
    let mut found: Vec<(SocketId, SocketOptions)> = Vec::new();
    for (fd, inode) in process.sockets()? {
        let Some(id) = wanted.iter().find(|id| id.inode == inode) else { continue };
        if found.iter().any(|(known, _)| known == id) {
            continue;
        }
        let Some(duplicate) = process.take(fd)? else { continue };
        if rustix::net::sockopt::socket_cookie(&duplicate) == Ok(id.cookie) {
            found.push((*id, read(duplicate.as_fd())));
        }
    }
    Ok(found)
}

/// An option that the kernel lacks reads as unset.
fn read(socket: BorrowedFd<'_>) -> SocketOptions {
    let option = |name| sys::option(socket, name).unwrap_or(0);
    let udp = |name| sys::udp_option(socket, name).unwrap_or(0);
    let positive = |value: libc::c_int| u32::try_from(value).ok();
    let stamps = |(name, kinds): &(&str, [libc::c_int; 2])| {
        kinds.iter().any(|kind| option(*kind) != 0).then(|| (*name).to_owned())
    };
    SocketOptions {
        reuseport: option(libc::SO_REUSEPORT) != 0,
        reuseaddr: option(libc::SO_REUSEADDR) != 0,
        // -1 means any CPU.
        incoming_cpu: sys::option(socket, libc::SO_INCOMING_CPU).ok().and_then(positive),
        napi: positive(option(SO_INCOMING_NAPI_ID)).filter(|napi| *napi != 0),
        busy_poll_us: positive(option(libc::SO_BUSY_POLL)).unwrap_or(0),
        prefer_busy_poll: option(libc::SO_PREFER_BUSY_POLL) != 0,
        timestamps: STAMPS.iter().filter_map(stamps).collect(),
        gro: udp(libc::UDP_GRO) != 0,
        segment: u16::try_from(udp(libc::UDP_SEGMENT)).ok().filter(|bytes| *bytes != 0),
        encapsulation: positive(udp(UDP_ENCAP)).filter(|kind| *kind != 0),
        receive_buffer_set: option(SO_BUF_LOCK) & RECEIVE_BUFFER_SET != 0,
        zero_copy: option(libc::SO_ZEROCOPY) != 0,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::net::sockopt;

    use super::*;
    use crate::Snapshot;
    use crate::source::Folder;

    #[test]
    fn options_of_own_sockets_are_those_that_were_set_and_only_of_those_asked_for() {
        udpath_lab::needs_root!();
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (set, plain, other) = (bind(), bind(), bind());
        sockopt::set_socket_reuseport(&set, true).unwrap();
        sockopt::set_socket_recv_buffer_size(&set, 50_000).unwrap();
        sockopt::set_socket_incoming_cpu(&set, 0).unwrap();
        let socket = set.as_fd();
        sys::set_option(socket, libc::SO_TIMESTAMPNS, 1).unwrap();
        sys::set_option(socket, libc::SO_PREFER_BUSY_POLL, 1).unwrap();
        let mut snapshot = Snapshot::read(&Folder::live());
        let ports = [&set, &plain].map(|socket| socket.local_addr().unwrap());
        let mut missing = Vec::new();
        look_closer(&mut snapshot.sockets, |socket| ports.contains(&socket.local), &mut missing);
        assert_eq!(missing, []);
        let of = |socket: &UdpSocket| {
            let local = socket.local_addr().unwrap();
            snapshot.sockets.list.iter().find(|one| one.local == local).unwrap().options.clone()
        };
        let found = of(&set).unwrap();
        assert!(
            found.reuseport && !found.reuseaddr && found.receive_buffer_set && found.prefer_busy_poll,
            "{found:?}"
        );
        assert_eq!(
            (found.incoming_cpu, found.timestamps.as_slice()),
            (Some(0), &["SO_TIMESTAMPNS".to_owned()][..])
        );
        let expected = SocketOptions { incoming_cpu: None, ..SocketOptions::default() };
        assert_eq!(of(&plain), Some(expected));
        assert_eq!(of(&other), None);
    }
}
