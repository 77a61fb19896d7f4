//! Receive steering in the kernel's form: `queues/rx-N/rps_cpus`, a mask of the CPUs that process what the queue
//! received (RPS), and `queues/rx-N/rps_flow_cnt`, the flows that the queue follows to their reader (RFS;
//! Documentation/networking/scaling.rst). Called inside a machine.

use std::io;
use std::path::PathBuf;

use udpath_files::kernel;
use udpath_steer::CpuSet;

use crate::Error;

/// Receive steering of an interface, the same for each of its queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rps {
    /// CPUs that process received packets, by flow hash; empty: the CPU that received them.
    pub cpus: CpuSet,
    /// Flows that each queue follows to the CPU of their reader, rounded up to a power of two; 0: none. It needs the
    /// machine's flow table as well ([`Lab::set_flow_table`](crate::Lab::set_flow_table)).
    pub flows: u32,
}

/// The steering of every queue. `object`: `machine/interface`, for errors.
pub(crate) fn read(object: &str, interface: &str, queues: u32) -> Result<Vec<Rps>, Error> {
    (0..queues)
        .map(|queue| {
            let failed =
                |source| Error::system(format!("read the receive steering of {object} rx-{queue}"), source);
            let invalid = |wrong: String| failed(io::Error::new(io::ErrorKind::InvalidData, wrong));
            let text = |name| kernel::text(file(interface, queue, name)).map_err(failed);
            let cpus = CpuSet::from_mask(&text("rps_cpus")?).map_err(|wrong| invalid(wrong.to_string()))?;
            let flows = text("rps_flow_cnt")?;
            let flows = flows.trim().parse().map_err(|_| invalid(format!("'{flows}' is not a number")))?;
            Ok(Rps { cpus, flows })
        })
        .collect()
}

/// Writes the steering of all queues and reads it back. If a queue rejects it, the former steering is restored.
pub(crate) fn write(object: &str, interface: &str, queues: u32, wanted: &Rps) -> Result<(), Error> {
    let before = read(object, interface, queues)?;
    let all = vec![wanted.clone(); queues as usize];
    let written =
        put(object, interface, &all).and_then(|()| verify(object, wanted, &read(object, interface, queues)?));
    if written.is_err() {
        // Report the first failure.
        let _ = put(object, interface, &before);
    }
    written
}

fn put(object: &str, interface: &str, all: &[Rps]) -> Result<(), Error> {
    for (queue, wanted) in (0_u32..).zip(all) {
        for (name, value) in [("rps_cpus", wanted.cpus.to_mask()), ("rps_flow_cnt", wanted.flows.to_string())]
        {
            kernel::write(file(interface, queue, name), &value).map_err(|source| {
                Error::system(format!("write {value} to {name} of {object} rx-{queue}"), source)
            })?;
        }
    }
    Ok(())
}

fn verify(object: &str, wanted: &Rps, found: &[Rps]) -> Result<(), Error> {
    let rounded = Rps { flows: rounded(wanted.flows), ..wanted.clone() };
    match found.iter().zip(0_u32..).find(|(found, _)| **found != rounded) {
        None => Ok(()),
        Some((found, queue)) => Err(Error::NotTaken {
            what: "the receive steering",
            object: format!("{object} rx-{queue}"),
            wanted: words(&rounded),
            found: words(found),
        }),
    }
}

/// What the kernel keeps of a number of flows.
fn rounded(flows: u32) -> u32 {
    if flows == 0 { 0 } else { flows.next_power_of_two() }
}

fn words(rps: &Rps) -> String {
    format!("CPUs [{}], {} flows", rps.cpus, rps.flows)
}

fn file(interface: &str, queue: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/class/net/{interface}/queues/rx-{queue}/{name}"))
}
