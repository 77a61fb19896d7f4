//! XDP programs that are attached to interfaces already: their names for errors, and those that an ended server left.

use std::ffi::CString;
use std::fmt;

use aya::programs::loaded_programs;
use udpath_netlink::Rtnetlink;
use udpath_netlink::rtnetlink::xdp;

use crate::sys;

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

/// The XDP program on `interface`; `None` if there is none, or if the kernel does not report it.
pub(crate) fn of(interface: &str) -> Option<Holder> {
    let index = sys::interface_index(&CString::new(interface).ok()?)?;
    let xdp = Rtnetlink::open().ok()?.link(index).ok()?.xdp?;
    let modes = [(xdp.generic, "generic"), (xdp.driver, "native"), (xdp.hardware, "offloaded")];
    let (id, mode) = modes.into_iter().find_map(|(id, mode)| Some((id?, mode)))?;
    let name = name_of(id).filter(|name| !name.is_empty());
    Some(Holder { id, name, mode })
}

/// The name of a loaded program.
fn name_of(id: u32) -> Option<String> {
    let program = loaded_programs().filter_map(Result::ok).find(|program| program.id() == id)?;
    program.name_as_str().map(str::to_owned)
}

/// Detaches the XDP programs of this name, as the kernel has it (15 letters at most), from the interfaces of the
/// calling thread's network namespace, and returns the names of those. For programs that a server attached by netlink
/// and left behind.
///
/// # Errors
/// The interfaces cannot be listed, or one of them does not let its program go.
pub fn detach_leftover(name: &str) -> Result<Vec<String>, udpath_netlink::Error> {
    let mut netlink = Rtnetlink::open()?;
    let mut detached = Vec::new();
    for Attached { interface, index, mode } in attached(&mut netlink, name)? {
        netlink.detach_xdp(index, mode)?;
        detached.extend(interface);
    }
    Ok(detached)
}

/// The names of the interfaces of the calling thread's network namespace that have an XDP program of this name.
///
/// # Errors
/// The interfaces cannot be listed.
pub fn interfaces_with(name: &str) -> Result<Vec<String>, udpath_netlink::Error> {
    let found = attached(&mut Rtnetlink::open()?, name)?;
    Ok(found.into_iter().filter_map(|found| found.interface).collect())
}

/// An XDP program that was found at an interface.
struct Attached {
    interface: Option<String>,
    index: u32,
    mode: u32,
}

fn attached(netlink: &mut Rtnetlink, name: &str) -> Result<Vec<Attached>, udpath_netlink::Error> {
    let mut all = Vec::new();
    for link in netlink.links()? {
        let Some(attached) = link.xdp else { continue };
        for (id, mode) in [(attached.driver, xdp::DRV_MODE), (attached.generic, xdp::SKB_MODE)] {
            if id.and_then(name_of).is_some_and(|found| found == name) {
                all.push(Attached { interface: link.name.clone(), index: link.index, mode });
            }
        }
    }
    Ok(all)
}
