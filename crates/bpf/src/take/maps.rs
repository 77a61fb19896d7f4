//! The program's maps, and their keys in its format.

use std::net::{IpAddr, SocketAddr};

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, MapError, XskMap};

use super::outcome::WORDS;
use super::sources::Network;
use crate::Error;
use crate::attach;
use crate::error::Cause;
use crate::shared_array::SharedArray;

/// The program's name.
pub(super) const NAME: &str = "take";
/// Ports per word of the map.
pub(super) const PORTS: usize = 8;
/// Words of `struct checks`: the bits of `maybe`, and whether to look up networks.
const CHECKS: usize = 4096 / 64 + 1;
/// VLANs per word of the map.
pub(super) const VLANS: usize = 8;

pub(super) struct Maps {
    pub(super) counts: SharedArray,
    pub(super) ports: SharedArray,
    pub(super) mac: SharedArray,
    pub(super) addresses: HashMap<MapData, [u8; 20], u8>,
    pub(super) sockets: XskMap<MapData>,
    pub(super) checks: SharedArray,
    pub(super) sources: HashMap<MapData, [u8; 20], u8>,
    pub(super) prefixes: LpmTrie<MapData, [u8; 20], u8>,
    pub(super) vlans: SharedArray,
}

impl std::fmt::Debug for Maps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maps").finish_non_exhaustive()
    }
}

impl Maps {
    pub(super) fn of(object: &mut Ebpf, cpus: usize) -> Result<Self, Error> {
        let counts = SharedArray::map(object, NAME, "counts", cpus, WORDS)?;
        let ports = SharedArray::map(object, NAME, "ports", 65_536 / PORTS, 1)?;
        let mac = SharedArray::map(object, NAME, "mac", 1, 1)?;
        let checks = SharedArray::map(object, NAME, "checks", 1, CHECKS)?;
        let vlans = SharedArray::map(object, NAME, "vlans", 4096 / VLANS, 1)?;
        let addresses = HashMap::try_from(take_map(object, "addresses")?).map_err(|error| unfit(&error))?;
        let sockets = XskMap::try_from(take_map(object, "sockets")?).map_err(|error| unfit(&error))?;
        let sources = HashMap::try_from(take_map(object, "sources")?).map_err(|error| unfit(&error))?;
        let prefixes = LpmTrie::try_from(take_map(object, "prefixes")?).map_err(|error| unfit(&error))?;
        Ok(Self { counts, ports, mac, addresses, sockets, checks, sources, prefixes, vlans })
    }
}

fn take_map(object: &mut Ebpf, map: &'static str) -> Result<Map, Error> {
    let missing = || Error::Load { program: NAME, source: format!("the object has no map '{map}'").into() };
    object.take_map(map).ok_or_else(missing)
}

fn unfit(error: &MapError) -> Error {
    Error::Load { program: NAME, source: because(error) }
}

/// The system's own error, if there is one.
pub(super) fn because(error: &(dyn std::error::Error + 'static)) -> Cause {
    match attach::errno(error) {
        Some(libc::E2BIG) => "no more addresses fit; bind the wildcard, or load with room for more".into(),
        Some(code) => std::io::Error::from_raw_os_error(code).into(),
        None => attach::cause(error),
    }
}

/// `struct bound` of the program.
pub(super) fn key(address: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let version = put_address(&mut key, address.ip()) as u16;
    key[16..18].copy_from_slice(&address.port().to_be_bytes());
    key[18..].copy_from_slice(&version.to_ne_bytes());
    key
}

/// `struct source` of the program.
pub(super) fn source_key(address: IpAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let version = put_address(&mut key, address);
    key[16..].copy_from_slice(&version.to_ne_bytes());
    key
}

/// `struct prefix` of the program.
pub(super) fn prefix_key(network: &Network) -> Key<[u8; 20]> {
    let mut data = [0; 20];
    let version = put_address(&mut data[4..], network.address) as u16;
    data[..2].copy_from_slice(&network.vlan.to_ne_bytes());
    data[2..4].copy_from_slice(&version.to_ne_bytes());
    Key::new(32 + u32::from(network.len), data)
}

/// Writes the address to the front of `key`; returns its version.
fn put_address(key: &mut [u8], address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(ip) => {
            key[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            key[..16].copy_from_slice(&ip.octets());
            6
        }
    }
}
