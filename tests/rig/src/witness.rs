//! Another program at the hook of policies, as an operator or a service manager may have one there.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use aya::programs::{CgroupAttachMode, CgroupSockAddr};
use aya::{Ebpf, EbpfLoader};
use udpath_bpf::SharedArray;

/// The compiled program, aligned for the ELF reader.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bind_witness.o"));
const NAME: &str = "bind_witness";

/// Counts binds over IPv4 in a cgroup and below, until dropped.
#[derive(Debug)]
pub struct BindWitness {
    binds: SharedArray,
    id: u32,
    _object: Ebpf,
}

impl BindWitness {
    /// Attaches to the cgroup at this path, beside whatever is attached there.
    ///
    /// # Panics
    /// It is not a cgroup of version 2, or permission is denied.
    #[must_use]
    pub fn attach(cgroup: &Path) -> Self {
        let cgroup = File::open(cgroup).unwrap();
        let mut object = EbpfLoader::new().load(OBJECT).unwrap();
        let program: &mut CgroupSockAddr = object.program_mut(NAME).unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach(cgroup, CgroupAttachMode::Single).unwrap();
        let id = program.info().unwrap().id();
        let binds = SharedArray::map(&object, NAME, "binds", 1, 1).unwrap();
        Self { binds, id, _object: object }
    }

    /// The program's ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Binds so far.
    #[must_use]
    pub fn binds(&self) -> u64 {
        self.binds.element(0)[0].load(Relaxed)
    }
}
