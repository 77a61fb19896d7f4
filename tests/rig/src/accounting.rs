//! Programs of a control group that look at each packet of its sockets, as systemd's for IPAccounting= and
//! IPAddressDeny=.

use std::error::Error;
use std::fs::File;

use aya::Ebpf;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType};

use crate::Cgroup;

/// The compiled programs, aligned for the ELF reader.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/accounting.o"));

/// Looks at the packets of all sockets that are made in the caller's group, until dropped or its process ends.
#[derive(Debug)]
pub struct Accounting {
    _object: Ebpf,
}

impl Accounting {
    /// Attaches both programs.
    ///
    /// # Errors
    /// No permission, or no control group of version 2.
    pub fn attach() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let group = File::open(Cgroup::of_this_process())?;
        let mut object = Ebpf::load(OBJECT)?;
        for (name, way) in
            [("receives", CgroupSkbAttachType::Ingress), ("sends", CgroupSkbAttachType::Egress)]
        {
            let program: &mut CgroupSkb =
                object.program_mut(name).expect("it is in the object").try_into()?;
            program.load()?;
            // A link is always one of several.
            program.attach(&group, way, CgroupAttachMode::Single)?;
        }
        Ok(Self { _object: object })
    }
}
