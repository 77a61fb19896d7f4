//! The NIC's RSS hash for receivers: `take_hashed` of `bpf/take.bpf.c`, bound to one device.
//!
//! ```text
//!   NIC ▸ descriptor ▸ bpf_xdp_metadata_rx_hash ▸ note ▸ bpf_xdp_adjust_meta ▸ AF_XDP
//!
//!   chunk   ... | mark, hash | Ethernet header ...        the 8 bytes before each frame, in host order
//!                             └ the frame's address        mark: HASHED, or 0 if the device has no hash for it
//! ```
//! The program writes the note for every frame it redirects, and leaves a frame without room for it to the kernel: the
//! bytes before a frame are never stale. A receiver may therefore read them only while this program is attached
//! ([`RxHash::Device`]). The hash only selects the worker.
//!
//! A hash over addresses only is not used, as in the kernel's RPS: many NICs hash UDP that way unless configured
//! otherwise (`ethtool -N IF rx-flow-hash udp4 sdfn`).
//!
//! Why a loader in addition to aya: the hash comes from a kfunc, whose call uses its ID in the kernel's BTF, and the
//! program must be bound to the device when it is loaded (`BPF_F_XDP_DEV_BOUND_ONLY`). aya supports neither. That takes
//! one instruction and two system calls, so that is what is here: aya creates the maps and loads `take` as usual, its
//! object reader puts their descriptors into `take_hashed`, and the placeholder call becomes the kfunc's. libbpf would
//! work too, at the cost of a C library, its build, and libelf on every build machine.
//!
//! If any of this is unavailable, that is not an error: `take` runs, receivers compute the hash, and
//! [`RxHash::Computed`] has the reason.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use aya::maps::Map;
use aya::{Btf, Ebpf};
use aya_obj::Object;
use aya_obj::btf::BtfKind;
use aya_obj::generated::{BPF_CALL, BPF_JMP, BPF_PSEUDO_KFUNC_CALL, bpf_insn};

use crate::{netdev, sys};

/// The program.
const NAME: &str = "take_hashed";
/// The kfunc it calls.
const KFUNC: &str = "bpf_xdp_metadata_rx_hash";
/// The placeholder for it in the object, not the number of any helper.
const PLACEHOLDER: i32 = 0x6873_6168;
/// A note's mark: a hash follows.
const HASHED: u32 = 0x6873_6168;

/// Bytes before each frame while the hash comes from the device.
pub const NOTE: usize = 8;

/// The source of the hash that frames are steered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RxHash {
    /// From the device, in front of each frame for which it has one: [`read_note`].
    Device,
    /// Not available: receivers compute it. The reason, in words.
    Computed(String),
}

impl fmt::Display for RxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("from the device"),
            Self::Computed(reason) => write!(f, "computed ({reason})"),
        }
    }
}

/// The hash in a note, if the device had one.
#[inline]
#[must_use]
pub fn read_note(note: [u8; NOTE]) -> Option<u32> {
    let [a, b, c, d, hash @ ..] = note;
    (u32::from_ne_bytes([a, b, c, d]) == HASHED).then(|| u32::from_ne_bytes(hash))
}

/// The maps of a loaded object, by name. The descriptors are valid as long as the object and everything taken out of
/// it.
pub(crate) fn maps(object: &Ebpf) -> Vec<(String, RawFd)> {
    let fd = |map: &Map| match map {
        Map::Array(data) | Map::HashMap(data) | Map::LpmTrie(data) | Map::XskMap(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    };
    object.maps().filter_map(|(name, map)| Some((name.to_owned(), fd(map)?))).collect()
}

/// Loads the program of `object` for `interface` with these maps, and attaches it in native mode, until the returned
/// link is closed.
///
/// # Errors
/// Why the hash has to be computed.
pub(crate) fn attach(object: &[u8], maps: &[(String, RawFd)], interface: &str) -> Result<OwnedFd, String> {
    let name = std::ffi::CString::new(interface).map_err(|error| error.to_string())?;
    let index = sys::interface_index(&name).ok_or("no such interface")?;
    match netdev::reports_rx_hash(index) {
        Ok(true) => {}
        Ok(false) => return Err("the driver does not report a hash to XDP programs".into()),
        Err(error) => return Err(format!("cannot read what the driver reports: {error}")),
    }
    let btf = Btf::from_sys_fs().map_err(|error| format!("cannot read the kernel's BTF: {error}"))?;
    let kfunc = btf
        .id_by_type_name_kind(KFUNC, BtfKind::Func)
        .map_err(|_| format!("the kernel has no {KFUNC} (Linux 6.3 and later have)"))?;
    let (program, license) = instructions(object, maps, kfunc)?;
    let program = sys::load_bound_xdp(c"take_hashed", &program, &license, index)
        .map_err(|error| format!("cannot load the program for this device: {error}"))?;
    sys::attach_xdp(&program, index).map_err(|error| format!("cannot attach the program: {error}"))
}

/// The program's instructions, with the maps' descriptors and the kfunc's ID; and its license.
fn instructions(
    object: &[u8],
    maps: &[(String, RawFd)],
    kfunc: u32,
) -> Result<(Vec<bpf_insn>, std::ffi::CString), String> {
    let unfit = |what: &dyn fmt::Display| format!("the object does not fit: {what}");
    let mut object = Object::parse(object).map_err(|error| unfit(&error))?;
    let known = object.maps.clone();
    let maps = maps.iter().filter_map(|(name, fd)| Some((name.as_str(), *fd, known.get(name)?)));
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_maps(maps, &text).map_err(|error| unfit(&error))?;
    object.relocate_calls(&text).map_err(|error| unfit(&error))?;
    let program = object.programs.get(NAME).ok_or_else(|| unfit(&"no program of that name"))?;
    let license = program.license.clone();
    let function = object.functions.remove(&program.function_key());
    let mut instructions = function.ok_or_else(|| unfit(&"a program without code"))?.instructions;
    let kfunc = i32::try_from(kfunc).map_err(|error| unfit(&error))?;
    let mut calls = 0;
    for call in instructions.iter_mut().filter(|instruction| is_placeholder(instruction)) {
        call.set_src_reg(BPF_PSEUDO_KFUNC_CALL as u8);
        call.imm = kfunc;
        calls += 1;
    }
    if calls == 0 {
        return Err(unfit(&"it does not request a hash"));
    }
    Ok((instructions, license))
}

fn is_placeholder(instruction: &bpf_insn) -> bool {
    u32::from(instruction.code) == BPF_JMP | BPF_CALL
        && instruction.src_reg() == 0
        && instruction.imm == PLACEHOLDER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::object;

    #[test]
    fn the_call_becomes_the_kfuncs_and_maps_get_their_descriptors() {
        let names = [
            ".rodata",
            "counts",
            "ports",
            "mac",
            "addresses",
            "sockets",
            "checks",
            "sources",
            "prefixes",
            "vlans",
        ];
        let maps: Vec<_> = names.iter().zip(1001..).map(|(name, fd)| ((*name).to_owned(), fd)).collect();
        let (program, license) = instructions(object!("take"), &maps, 77).unwrap();
        assert_eq!(license.to_str(), Ok("Dual MIT/GPL"));
        let kfuncs = program
            .iter()
            .filter(|call| u32::from(call.src_reg()) == BPF_PSEUDO_KFUNC_CALL && call.imm == 77);
        assert_eq!(kfuncs.count(), 1);
        assert!(!program.iter().any(is_placeholder));
        for (name, fd) in &maps {
            assert!(program.iter().any(|load| load.code == 0x18 && load.imm == *fd), "{name} is not used");
        }
        let refused = instructions(object!("take"), &maps[1..], 77).unwrap_err();
        assert!(refused.starts_with("the object does not fit: "), "{refused}");
    }

    #[test]
    fn a_note_has_a_hash_or_none() {
        let note = |mark: u32, hash: u32| {
            let mut note = [0; NOTE];
            note[..4].copy_from_slice(&mark.to_ne_bytes());
            note[4..].copy_from_slice(&hash.to_ne_bytes());
            note
        };
        assert_eq!(read_note(note(HASHED, 0x1234_5678)), Some(0x1234_5678));
        assert_eq!(read_note(note(HASHED, 0)), Some(0));
        assert_eq!(read_note(note(0, 7)), None);
        assert_eq!(read_note(*b"hashhash"), Some(u32::from_ne_bytes(*b"hash")), "what the C source writes");
    }
}
