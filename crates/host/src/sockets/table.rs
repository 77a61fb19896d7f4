//! `/proc/net/udp` and `udp6`: the list of sockets if the kernel lacks sock_diag, or for captured machines.
//!
//! Addresses are printed word by word in host byte order, so the text of a little-endian machine does not mean the same
//! on a big-endian one; they are parsed in the byte order of the machine that runs this.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::client::sockets::Socket;
use crate::text::{Malformed, optional, wanted};
use crate::{Fact, Missing, Provenance, Source};

/// State of a connected socket (`TCP_ESTABLISHED` of net/tcp_states.h).
const CONNECTED: u8 = 1;

/// Reads both; a missing IPv6 file is normal.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Option<Fact<Vec<Socket>>> {
    let mut sockets = wanted(source, missing, "UDP sockets", "/proc/net/udp", parse)?;
    let v6 = optional(source, missing, "UDP sockets of IPv6", "/proc/net/udp6", parse);
    sockets.extend(v6.unwrap_or_default());
    Some(Fact::new(sockets, Provenance::File("/proc/net/udp".into())))
}

/// Parses either file.
///
/// # Errors
/// A line that is not a socket.
pub fn parse(text: &str) -> Result<Vec<Socket>, Malformed> {
    let line = |(index, line): (usize, &str)| {
        socket(line).ok_or_else(|| Malformed::new(index, line, "not a socket"))
    };
    text.lines().enumerate().skip(1).map(line).collect()
}

/// ```text
///   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
///  511: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000  101        0 19310 2 0000000000000000 0
/// ```
fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [
        _slot,
        local,
        peer,
        state,
        queues,
        _timer,
        _retransmits,
        uid,
        _timeout,
        inode,
        _references,
        _pointer,
        drops,
        ..,
    ] = words[..]
    else {
        return None;
    };
    let state = u8::from_str_radix(state, 16).ok()?;
    let (send_queue, receive_queue) = queues.split_once(':')?;
    let hexadecimal = |word: &str| u32::from_str_radix(word, 16).ok();
    let peer = address(peer)?;
    Some(Socket {
        local: address(local)?,
        peer: (state == CONNECTED).then_some(peer),
        interface: None,
        inode: inode.parse().ok()?,
        cookie: None,
        uid: uid.parse().ok()?,
        v6only: None,
        receive_queue: hexadecimal(receive_queue)?,
        send_queue: hexadecimal(send_queue)?,
        memory: None,
        // Older kernels print the 32 bits as a signed number.
        drops: drops.parse::<i64>().ok()? as u32,
        owners: Vec::new(),
        group: None,
        options: None,
    })
}

/// `0100007F:0035`, or four words for IPv6.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(8 * at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn ipv4() {
        // Debian 12, 6.1: nsd on two addresses, and a resolver's query.
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops             
  511: 0100007F:0035 00000000:0000 07 00000000:00000D00 00:00000000 00000000   101        0 19310 2 0000000000000000 12345
 2301: 0F02000A:8F2D 35350909:0035 01 00000000:00000000 00:00000000 00000000   100        0 20011 2 00000000e2a43c5f 0
";
        let sockets = parse(text).unwrap();
        assert_eq!(sockets[0].local, "127.0.0.1:53".parse().unwrap());
        assert_eq!((sockets[0].peer, sockets[0].uid, sockets[0].inode), (None, 101, 19_310));
        assert_eq!((sockets[0].receive_queue, sockets[0].drops), (0xd00, 12_345));
        assert_eq!(sockets[1].local, "10.0.2.15:36653".parse().unwrap());
        assert_eq!(sockets[1].peer, Some("9.9.53.53:53".parse().unwrap()));
    }

    #[test]
    fn ipv6() {
        let text = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1234: B80D01200000000000000000010000FE:1F90 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4242 2 0000000000000000 0
";
        let sockets = parse(text).unwrap();
        assert_eq!(sockets[0].local, "[2001:db8::fe00:1]:8080".parse().unwrap());
    }

    #[test]
    fn invalid_lines_are_located() {
        let told = parse("header\n 1: 0100007F:0035 rubbish\n").unwrap_err();
        assert_eq!(told.to_string(), "line 2: not a socket: '1: 0100007F:0035 rubbish'");
        assert_eq!(parse(""), Ok(Vec::new()));
        for address_ in ["0100007F", "0100007F:G", "01:1", "é100007F:0035"] {
            assert_eq!(address(address_), None, "{address_}");
        }
    }

    #[test]
    fn this_machines_sockets_are_listed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let six = std::net::UdpSocket::bind("[::1]:0").ok();
        let mut missing = Vec::new();
        let found = read(&crate::source::Folder::live(), &mut missing).unwrap();
        for bound in [Some(&socket), six.as_ref()].into_iter().flatten() {
            let local = bound.local_addr().unwrap();
            assert!(found.value.iter().any(|one| one.local == local && one.inode != 0), "{local}");
        }
        assert_eq!(missing, []);
    }
}
