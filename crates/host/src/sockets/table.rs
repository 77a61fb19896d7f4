//! `/proc/net/udp` and `udp6`: the list of sockets if the kernel lacks sock_diag, or for captured machines.
//!
//! Addresses are printed word by word in host byte order, so the text of a little-endian machine does not mean the same
//! on a big-endian one; they are parsed in the byte order of the machine that runs this.
//!
//! # One reading misses sockets
//! The kernel hands out such a file page by page, and begins each by counting up to the place where the last one ended
//! (`udp_get_idx` of net/ipv4/udp.c). A socket that is closed in between moves all after it one place forward, so
//! another is skipped that was there all the time: beside a resolver, which opens a socket for each query, nearly
//! always one is.
//!
//! ```text
//! page 1   a b c d |          b is closed: e is at d's place
//! page 2             f g h    e is in neither
//! ```
//! So the file is read until it lists the same twice, and what any reading had counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::client::sockets::Socket;
use crate::text::{Malformed, noted};
use crate::{Absence, Fact, Missing, Provenance, Source};

/// State of a connected socket (`TCP_ESTABLISHED` of net/tcp_states.h).
const CONNECTED: u8 = 1;
/// Most readings of a file that never lists the same twice. Fewer: a socket may be missing from all of them; under the
/// heaviest churn that two CPUs make, one reading misses a given socket once in twenty times. More: a busy resolver's
/// machine takes longer to read.
const READINGS: usize = 12;

/// Reads both; a missing IPv6 file is normal.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Option<Fact<Vec<Socket>>> {
    let (four, six) = ("/proc/net/udp", "/proc/net/udp6");
    let read = |path: &str| {
        let text = whole(|| source.text(path))?;
        parse(&text).map_err(|malformed| malformed.of(path))
    };
    let mut sockets = noted(missing, "UDP sockets", four, read(four))?;
    let v6 = match read(six) {
        Err(Absence::NotThere | Absence::NotSupported | Absence::NotCaptured) => None,
        other => noted(missing, "UDP sockets of IPv6", six, other),
    };
    sockets.extend(v6.unwrap_or_default());
    Some(Fact::new(sockets, Provenance::File(four.into())))
}

/// The text of either file with every socket that was bound while it was read.
///
/// # Errors
/// Those of a reading.
pub fn whole<E>(mut read: impl FnMut() -> Result<String, E>) -> Result<String, E> {
    let mut last = read()?;
    let mut all: BTreeMap<u32, String> = BTreeMap::new();
    for _ in 1..READINGS {
        let next = read()?;
        let same = inodes(&next) == inodes(&last);
        let earlier = std::mem::replace(&mut last, next);
        if same {
            break;
        }
        all.extend(earlier.lines().filter_map(|line| Some((inode(line)?, line.to_owned()))));
    }
    let listed = inodes(&last);
    for line in all.iter().filter(|(inode, _)| !listed.contains(inode)).map(|(_, line)| line) {
        last.push_str(line);
        last.push('\n');
    }
    Ok(last)
}

fn inodes(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(inode).collect()
}

/// Column 10 of a line; `None` of the header, and of a socket whose file is closed.
pub fn inode(line: &str) -> Option<u32> {
    line.split_ascii_whitespace().nth(9)?.parse().ok().filter(|inode| *inode != 0)
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
    fn a_socket_that_a_reading_skips_is_listed() {
        let line = |inode: u32| {
            format!(
                "1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 {inode} 2 0 0\n"
            )
        };
        let text = |inodes: &[u32]| {
            "header\n".to_owned() + &inodes.iter().map(|inode| line(*inode)).collect::<String>()
        };
        let read = |readings: &[&[u32]]| {
            let mut rest = readings.iter();
            let whole = whole(|| rest.next().map(|inodes| text(inodes)).ok_or("read too often"));
            let sockets = whole.map(|text| parse(&text).unwrap());
            (sockets.map(|list| list.iter().map(|one| one.inode).collect::<Vec<_>>()), rest.len())
        };
        assert_eq!(read(&[&[1, 2, 3], &[1, 2, 3], &[4]]), (Ok(vec![1, 2, 3]), 1));
        // 3 is skipped while 2 is closed.
        assert_eq!(read(&[&[1, 2, 3], &[1, 4], &[1, 3, 4], &[1, 3, 4]]), (Ok(vec![1, 3, 4, 2]), 0));
        let ever_new: Vec<Vec<u32>> = (0..20).map(|round| vec![1, 100 + round]).collect();
        let ever_new: Vec<&[u32]> = ever_new.iter().map(Vec::as_slice).collect();
        let (listed, left) = read(&ever_new);
        assert_eq!((listed.unwrap().len(), left), (READINGS + 1, 20 - READINGS));
        // Those whose file is closed are listed as they are.
        assert_eq!(read(&[&[0, 1], &[0, 0, 1]]), (Ok(vec![0, 0, 1]), 0));
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
