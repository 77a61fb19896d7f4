//! What an earlier process has attached, found by the program's ID.

use std::os::fd::AsFd;

use aya::maps::{Array, Map, MapData, MapError};
use aya::programs::loaded_programs;
use aya_obj::generated::bpf_prog_type;

use super::rule::RuleWords;
use super::slots::{cookies, empty};
use super::{PROGRAM, Rule, SOCKETS, refused};
use crate::Error;
use crate::attach::cause;
use crate::error::Cause;

/// The map of the object's constants, which has the rule.
const CONSTANTS: &str = ".rodata";

/// A program of [`Selection`](super::Selection) that an earlier process has attached.
#[derive(Debug)]
pub struct Installed {
    /// Its rule.
    pub rule: Rule,
    /// The cookie of each slot's socket; `None` for an empty slot.
    pub sockets: Vec<Option<u64>>,
    array: MapData,
}

impl Installed {
    /// Reads the program with this ID; `None` if it is not one of [`Selection`](super::Selection), or of another
    /// version.
    ///
    /// # Errors
    /// It has been unloaded, or permission is denied.
    pub fn read(id: u32) -> Result<Option<Self>, Error> {
        let program = loaded_programs().flatten().find(|program| program.id() == id);
        let program =
            program.ok_or_else(|| gone(id, "it is no longer loaded, or permission is denied".into()))?;
        let kind = program.program_type();
        if kind != bpf_prog_type::BPF_PROG_TYPE_SK_REUSEPORT || program.name_as_str() != Some(PROGRAM) {
            return Ok(None);
        }
        let (mut rule, mut array) = (None, None);
        for map in program.map_ids().map_err(|error| gone(id, cause(&error)))?.unwrap_or_default() {
            let failed = |error: MapError| gone(id, cause(&error));
            let map = MapData::from_id(map).map_err(failed)?;
            let info = map.info().map_err(failed)?;
            match info.name_as_str() {
                Some(CONSTANTS) => {
                    let constants = Map::from_map_data(map).map_err(failed)?;
                    let constants = Array::<MapData, RuleWords>::try_from(constants).map_err(failed)?;
                    rule = Rule::of(constants.get(&0, 0).map_err(failed)?);
                }
                Some(SOCKETS) => array = Some((map, info.max_entries())),
                _ => {}
            }
        }
        let Some((rule, (array, slots))) = rule.zip(array) else { return Ok(None) };
        let sockets = cookies(array.fd().as_fd(), slots)?;
        Ok(Some(Self { rule, sockets, array }))
    }

    /// Empties all slots, so that the sockets can be put into those of another program. Until that one is attached, the
    /// kernel's hash chooses.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn release(&mut self) -> Result<(), Error> {
        for (slot, socket) in (0..).zip(&mut self.sockets) {
            if socket.take().is_some() {
                empty(self.array.fd().as_fd(), slot).map_err(|error| {
                    refused(&format!("empty slot {slot} of a reuseport group"), error.into())
                })?;
            }
        }
        Ok(())
    }
}

fn gone(id: u32, source: Cause) -> Error {
    refused(&format!("read BPF program {id}"), source)
}
