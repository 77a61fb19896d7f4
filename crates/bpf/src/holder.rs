//! Who holds an interface: the XDP program that is attached there already, for the refusal that names it.

use std::ffi::CString;
use std::fmt;

use aya::programs::loaded_programs;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::sys;

/// Room for one interface's attributes, bytes. With statistics, many queues and virtual functions they take some
/// kilobytes; an answer that is cut names no program.
const ANSWER: usize = 1 << 16;

/// An XDP program on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    id: u32,
    name: Option<String>,
    mode: &'static str,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, " in {} mode", self.mode)
    }
}

/// The XDP program on `interface`. `None` if there is none, or if the kernel does not say.
pub(crate) fn of(interface: &str) -> Option<Holder> {
    let index = sys::interface_index(&CString::new(interface).ok()?)?;
    let link = link(index)?;
    let (id, mode) = link
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::Xdp(xdp) => Some(xdp),
            _ => None,
        })
        .flatten()
        .find_map(|xdp| match xdp {
            LinkXdp::DrvProgId(id) => Some((*id, "native")),
            LinkXdp::SkbProgId(id) => Some((*id, "generic")),
            LinkXdp::HwProgId(id) => Some((*id, "offloaded")),
            _ => None,
        })?;
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned))
        .filter(|name| !name.is_empty());
    Some(Holder { id, name, mode })
}

fn link(index: u32) -> Option<LinkMessage> {
    let mut socket = Socket::new(NETLINK_ROUTE).ok()?;
    socket.bind_auto().ok()?;
    socket.connect(&SocketAddr::new(0, 0)).ok()?;
    let mut ask = LinkMessage::default();
    ask.header.index = index;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, RouteNetlinkMessage::GetLink(ask).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0).ok()?;
    let mut answer = Vec::with_capacity(ANSWER);
    // The kernel answers within the send call: nothing to wait for.
    socket.recv(&mut answer, libc::MSG_DONTWAIT).ok()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).ok()?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Some(link),
        _ => None,
    }
}
