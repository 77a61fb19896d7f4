//! The interface under a port: its properties in sysfs, now and later.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::net::{AddressFamily, SocketType};
use udpath_netlink::ioctl::{self, ethtool_value};

use super::error::Error;
use super::sys;

/// Maximum length of a sysfs file of an interface, bytes. All of them hold a number or an address.
const MAX_FILE_LEN: usize = 64;

/// An interface of the network namespace it was looked up in, whichever thread uses it.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    index: u32,
    /// Its directory in sysfs: the descriptor keeps referring to this interface.
    folder: OwnedFd,
}

/// Properties that may change while a port is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) queues: u32,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
}

impl Interface {
    /// The interface `name` of the calling thread's network namespace.
    pub(super) fn find(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface { interface: name.to_owned() };
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            return Err(missing());
        }
        let socket =
            rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(|_| missing())?;
        let index = rustix::net::netdevice::name_to_index(&socket, name).map_err(|_| missing())?;
        let mac = sys::hardware_address(socket.as_fd(), name).map_err(|_| missing())?;
        let other = || Error::OtherSysfs { interface: name.to_owned() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/sys/class/net/{name}");
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|_| other())?;
        let interface = Self { name: name.to_owned(), index, folder };
        // Two network namespaces often have an `eth0` with the same index, but not with the same address.
        if interface.number("ifindex")? != index || (mac != [0; 6] && interface.mac()? != mac) {
            return Err(other());
        }
        Ok(interface)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Its current properties.
    pub(super) fn facts(&self) -> Result<Facts, Error> {
        Ok(Facts { queues: self.queues()?, mtu: self.number("mtu")?, mac: self.mac()? })
    }

    /// Receive queues in use.
    pub(super) fn queues(&self) -> Result<u32, Error> {
        let failed = |cause: rustix::io::Errno| self.unreadable("queues", cause.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let queues = openat(&self.folder, "queues", flags, Mode::empty()).map_err(failed)?;
        let mut count = 0;
        for entry in Dir::read_from(queues).map_err(failed)? {
            count += u32::from(entry.map_err(failed)?.file_name().to_bytes().starts_with(b"rx-"));
        }
        Ok(count)
    }

    /// Zeros if it has none, or not an Ethernet address.
    fn mac(&self) -> Result<[u8; 6], Error> {
        let text = self.text("address")?;
        let mut mac = [0; 6];
        let mut octets = text.split(':');
        for octet in &mut mac {
            let Some(value) = octets.next().and_then(|text| u8::from_str_radix(text, 16).ok()) else {
                return Ok([0; 6]);
            };
            *octet = value;
        }
        Ok(if octets.next().is_none() { mac } else { [0; 6] })
    }

    /// Whether it removes VLAN tags from frames it receives.
    pub(super) fn removes_vlan_tags(&self) -> Option<bool> {
        /// `ETH_FLAG_RXVLAN` of linux/ethtool.h.
        const RX_VLAN: u32 = 1 << 8;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        let flags = ethtool_value(socket.as_fd(), &self.name, ioctl::FLAGS, 0).ok()?;
        Some(flags & RX_VLAN != 0)
    }

    fn number(&self, file: &'static str) -> Result<u32, Error> {
        let text = self.text(file)?;
        text.parse().map_err(|error| self.unreadable(file, io::Error::other(error)))
    }

    fn text(&self, file: &'static str) -> Result<String, Error> {
        let failed = |cause: io::Error| self.unreadable(file, cause);
        let opened = openat(&self.folder, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|cause| failed(cause.into()))?;
        let mut text = String::with_capacity(MAX_FILE_LEN);
        let mut bytes = std::fs::File::from(opened).take(MAX_FILE_LEN as u64);
        bytes.read_to_string(&mut text).map_err(failed)?;
        Ok(text.trim().to_owned())
    }

    fn unreadable(&self, what: &'static str, cause: io::Error) -> Error {
        Error::Read { interface: self.name.clone(), what, cause }
    }
}
