//! Packet sockets and handlers, which receive packets before the protocols.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Malformed, optional, wanted};
use crate::{Missing, Source};

/// Packet sockets and handlers. Each one that receives everything costs a clone per packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PacketSockets {
    /// Packet sockets: /proc/net/packet.
    pub sockets: Vec<PacketSocket>,
    /// Handlers of packet types: /proc/net/ptype.
    pub handlers: Vec<PacketHandler>,
}

/// A packet socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PacketSocket {
    /// 3: with link-layer header (`SOCK_RAW`), 2: without (`SOCK_DGRAM`), 10: the obsolete type (`SOCK_PACKET`).
    pub kind: u32,
    /// The EtherType it receives; 3: everything; 0: nothing (it only sends).
    pub protocol: u16,
    /// The interface's index; 0: all.
    pub interface: u32,
    /// Whether it is receiving packets.
    pub running: bool,
    /// Bytes waiting for its reader.
    pub queued: u64,
    /// Its owner's user.
    pub user: u32,
    /// Its inode, as /proc/PID/fd shows it.
    pub inode: u64,
}

/// A handler of a packet type.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PacketHandler {
    /// EtherType in hexadecimal (`0800`), or `ALL`.
    pub kind: String,
    /// The interface it is limited to.
    pub device: Option<String>,
    /// The kernel function.
    pub function: String,
}

/// Reads the packet sockets and handlers.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> PacketSockets {
    let handlers =
        wanted(source, missing, "packet handlers", "/proc/net/ptype", handlers).unwrap_or_default();
    // Absent in a kernel without packet sockets.
    let sockets =
        optional(source, missing, "packet sockets", "/proc/net/packet", sockets).unwrap_or_default();
    PacketSockets { sockets, handlers }
}

/// `/proc/net/packet`: `sk RefCnt Type Proto Iface R Rmem User Inode`, `Proto` in hexadecimal.
///
/// # Errors
/// A line with too few columns, or an invalid number.
pub fn sockets(text: &str) -> Result<Vec<PacketSocket>, Malformed> {
    let row = |(index, line): (usize, &str)| {
        let wrong = || Malformed::new(index, line, "no packet socket");
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, kind, protocol, interface, running, queued, user, inode, ..] = columns[..] else {
            return Err(wrong());
        };
        Ok(PacketSocket {
            kind: kind.parse().map_err(|_| wrong())?,
            protocol: u16::from_str_radix(protocol, 16).map_err(|_| wrong())?,
            interface: interface.parse().map_err(|_| wrong())?,
            running: running != "0",
            queued: queued.parse().map_err(|_| wrong())?,
            user: user.parse().map_err(|_| wrong())?,
            inode: inode.parse().map_err(|_| wrong())?,
        })
    };
    text.lines().enumerate().skip(1).map(row).collect()
}

/// `/proc/net/ptype`: `Type Device Function`; the device column is empty for a handler on all devices. A function in a
/// module is followed by the module's name in brackets.
///
/// # Errors
/// A line with too few or too many words.
pub fn handlers(text: &str) -> Result<Vec<PacketHandler>, Malformed> {
    let row = |(index, line): (usize, &str)| {
        let columns: Vec<&str> =
            line.split_ascii_whitespace().filter(|word| !word.starts_with('[')).collect();
        let (kind, device, function) = match columns[..] {
            [kind, function] => (kind, None, function),
            [kind, device, function] => (kind, Some(device.to_owned()), function),
            _ => return Err(Malformed::new(index, line, "not a packet handler")),
        };
        Ok(PacketHandler { kind: kind.into(), device, function: function.into() })
    };
    text.lines().enumerate().skip(1).map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Linux 6.18, tcpdump on interface 2 and lldpd on all.
    const PACKET: &str = "\
sk               RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   2     1 1280   0      34981
0000000000000000 3      3    88cc   0     1 0      107    18265
0000000000000000 3      2    0000   0     0 0      0      18266
";
    /// Linux 6.18.
    const PTYPE: &str = "\
Type Device      Function
ALL  eth0     tpacket_rcv
0800          ip_rcv
0011          llc_rcv [llc]
86dd          ipv6_rcv
";

    #[test]
    fn packet_sockets_are_read() {
        let sockets = sockets(PACKET).unwrap();
        assert_eq!(sockets.len(), 3);
        let tcpdump = PacketSocket {
            kind: 3,
            protocol: 3,
            interface: 2,
            running: true,
            queued: 1280,
            user: 0,
            inode: 34981,
        };
        assert_eq!(sockets[0], tcpdump);
        assert_eq!((sockets[1].protocol, sockets[2].running), (0x88cc, false));
    }

    #[test]
    fn handlers_have_a_device_or_none() {
        let handlers = handlers(PTYPE).unwrap();
        assert_eq!(handlers[0].device.as_deref(), Some("eth0"));
        assert_eq!((handlers[1].kind.as_str(), handlers[1].function.as_str()), ("0800", "ip_rcv"));
        assert_eq!(
            handlers[2],
            PacketHandler { kind: "0011".into(), device: None, function: "llc_rcv".into() }
        );
    }

    #[test]
    fn a_wrong_line_is_named() {
        let wrong = sockets("header\n1 2 3\n").unwrap_err();
        assert_eq!(wrong.to_string(), "line 2: no packet socket: '1 2 3'");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\PC{0,40}\n){0,4}") {
            let _ = (sockets(&text), handlers(&text));
        }
    }
}
