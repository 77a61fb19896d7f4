//! Which program selects the socket in each reuseport group: `reuseport.bpf.c`.

use std::collections::BTreeMap;
use std::io::Read;

use aya::programs::Iter;
use aya::{Btf, EbpfLoader};

use crate::Error;
use crate::attach::{cause, find, load_error, object};
use crate::error::Cause;

const PROGRAM: &str = "reuseport";
/// Instructions of a classic program in a record.
const STEPS: usize = 8;
/// Bytes of a record: cookie, chooser, value, instructions.
const RECORD: usize = 16 + 8 * STEPS;

/// What selects among the sockets of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chooser {
    /// The kernel itself, by its hash of the flow or by the members' incoming CPUs.
    Kernel,
    /// A classic BPF program (`SO_ATTACH_REUSEPORT_CBPF`).
    Classic {
        /// Its number of instructions.
        length: u32,
        /// The first eight at most: code, jump if true, jump if false, operand, as in `struct sock_filter`.
        steps: Vec<(u16, u8, u8, u32)>,
    },
    /// An eBPF program (`SO_ATTACH_REUSEPORT_EBPF`), by its ID, as in `bpftool prog show id N`.
    Extended {
        /// Its ID.
        id: u32,
    },
}

/// The selector of each UDP socket of the calling thread's network namespace that is in a reuseport group, by socket
/// cookie. A socket whose cookie was never queried has none yet, and is left out.
///
/// # Errors
/// The kernel has no iterator over UDP sockets (Linux 5.9) or no type information, or permission is denied (`CAP_BPF`
/// and `CAP_PERFMON`).
pub fn reuseport_choosers() -> Result<BTreeMap<u64, Chooser>, Error> {
    let refused = |source: Cause| Error::Load { program: PROGRAM, source };
    let mut object =
        EbpfLoader::new().load(object!("reuseport")).map_err(|error| load_error(PROGRAM, error))?;
    let types = Btf::from_sys_fs().map_err(|error| refused(cause(&error)))?;
    let program: &mut Iter = find(&mut object, PROGRAM)?;
    program.load("udp", &types).map_err(|error| load_error(PROGRAM, error.into()))?;
    let link = program.attach().and_then(|id| program.take_link(id));
    let link = link.map_err(|error| load_error(PROGRAM, error.into()))?;
    let mut file = link.into_file().map_err(|error| refused(cause(&error)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(|error| refused(format!("cannot read its records: {error}").into()))?;
    Ok(bytes.chunks_exact(RECORD).filter_map(record).collect())
}

fn record(bytes: &[u8]) -> Option<(u64, Chooser)> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let cookie = u64::from_ne_bytes(*bytes.first_chunk()?);
    let value = word(12)?;
    let chooser = match word(8)? {
        0 => Chooser::Kernel,
        1 => {
            let step = |at: usize| {
                let step = bytes.get(16 + 8 * at..)?;
                let code = u16::from_ne_bytes(*step.first_chunk()?);
                Some((code, step[2], step[3], word(16 + 8 * at + 4)?))
            };
            Chooser::Classic {
                length: value,
                steps: (0..STEPS.min(value as usize)).map_while(step).collect(),
            }
        }
        _ => Chooser::Extended { id: value },
    };
    (cookie != 0).then_some((cookie, chooser))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let mut bytes = [0_u8; RECORD];
        bytes[0] = 7;
        assert_eq!(record(&bytes), Some((7, Chooser::Kernel)));
        bytes[8] = 2;
        bytes[12] = 12;
        assert_eq!(record(&bytes), Some((7, Chooser::Extended { id: 12 })));
        (bytes[8], bytes[12]) = (1, 1);
        bytes[16..24].copy_from_slice(&[6, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(record(&bytes), Some((7, Chooser::Classic { length: 1, steps: vec![(6, 0, 0, 3)] })));
        bytes[12] = 255;
        assert!(
            matches!(record(&bytes), Some((7, Chooser::Classic { length: 255, steps })) if steps.len() == STEPS)
        );
        bytes[0] = 0;
        assert_eq!((record(&bytes), record(&bytes[..9])), (None, None));
    }
}
