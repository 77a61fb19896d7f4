//! Several loops on one interface: `bpf/mixed_loop.bpf.c` calls the program of the loop whose flow has a reply's port.

use aya::maps::ProgramArray;
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};

use super::owners::Owners;
use super::{Layout, Loop, Memory};
use crate::Error;
use crate::attach::{self, cause, object};
use crate::shared_array::SharedArray;

/// The program that calls the others.
pub(super) const PROGRAM: &str = "mixed_loop";

/// Loads the program with the programs of `loops` to call, not attached yet; `memories` are theirs.
pub(super) fn load(
    loops: &mut [Loop],
    memories: &mut [Memory],
    layouts: &[Layout<'_>],
) -> Result<Ebpf, Error> {
    let refused = |error: &dyn std::error::Error| Error::Load { program: PROGRAM, source: cause(error) };
    let mut loader = EbpfLoader::new();
    loader.map_max_entries("loops", loops.len() as u32);
    let mut object = attach::load_xdp(PROGRAM, &mut loader, object!("mixed_loop"))?;
    for (at, memory) in memories.iter_mut().enumerate() {
        let owners = SharedArray::map(&object, PROGRAM, "owners", 65_536, 1)?;
        memory.mixed = Some(Owners::new(owners, at as u64));
    }
    let programs = object
        .map_mut("loops")
        .ok_or_else(|| Error::Load { program: PROGRAM, source: "the object has no map 'loops'".into() })?;
    let mut programs = ProgramArray::try_from(programs).map_err(|error| refused(&error))?;
    for (at, (one, layout)) in (0..).zip(loops.iter_mut().zip(layouts)) {
        let xdp: &mut Xdp = attach::find(&mut one.object, layout.requests.program())?;
        let descriptor = xdp.fd().map_err(|error| refused(&error))?;
        programs.set(at, descriptor, 0).map_err(|error| refused(&error))?;
    }
    Ok(object)
}
