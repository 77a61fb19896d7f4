//! The queues by which the CPU that received a reply hands the next request to the flow's home: `send_from_home` of
//! `bpf/closed_loop.h` puts it there, `bpf/forward.bpf.c` sends it.
//!
//! Each queue is the kernel's: it has a thread of its own on that CPU, which ends with the map. A server sends its
//! replies one by one, and each would wake that thread, which takes the CPU from the server's: two thirds of the rate
//! were left. As a batch thread (sched(7)) it waits until that one sleeps or has had its time, and then sends all that
//! has come in.

use aya::maps::{CpuMap, IterableMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};

use super::Layout;
use crate::attach::{self, cause, object};
use crate::{Error, sys};

const PROGRAM: &str = "forward";

/// Fewest and most frames in a queue: all requests in flight may wait in one. Fewer than a burst of the driver (64):
/// requests are dropped. More: the kernel refuses it.
const QUEUE_LEN: (u32, u32) = (64, 16_384);

/// Opens the queues of the loop's homes in its loaded `object`.
///
/// # Errors
/// The kernel refuses the program, or a queue for lack of memory.
pub(super) fn open(object: &mut Ebpf, layout: &Layout<'_>) -> Result<(), Error> {
    if layout.homes.is_empty() {
        return Ok(());
    }
    let program = layout.requests.program();
    let refused = |error: &dyn std::error::Error| Error::Load { program, source: cause(error) };
    let mut forward = attach::load_xdp(PROGRAM, &mut EbpfLoader::new(), object!("forward"))?;
    let forward: &mut Xdp = attach::find(&mut forward, PROGRAM)?;
    let forward = forward.fd().map_err(|error| refused(&error))?;
    let homes = object
        .map_mut("homes")
        .ok_or_else(|| Error::Load { program, source: "the object has no map 'homes'".into() })?;
    let mut homes = CpuMap::try_from(homes).map_err(|error| refused(&error))?;
    let len = layout.slots.clamp(QUEUE_LEN.0, QUEUE_LEN.1);
    for cpu in layout.homes {
        homes.set(*cpu as u32, len, Some(forward), 0).map_err(|error| refused(&error))?;
    }
    if let Ok(map) = homes.map().info() {
        send_in_batches(map.id(), layout.homes);
    }
    Ok(())
}

/// Makes the threads of the map's queues batch threads. Where they cannot be found, as in a PID namespace, requests are
/// sent all the same, at a higher cost.
fn send_in_batches(map: u32, cpus: &[usize]) {
    // kthreadd, which starts the kernel's threads.
    let children = udpath_files::kernel::text("/proc/2/task/2/children").unwrap_or_default();
    // By kernel/bpf/cpumap.c.
    let names: Vec<String> = cpus.iter().map(|cpu| format!("cpumap/{cpu}/map:{map}")).collect();
    for thread in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
        let name = udpath_files::kernel::text(format!("/proc/{thread}/comm")).unwrap_or_default();
        if names.iter().any(|known| known == name.trim_end()) {
            // One that has ended has nothing to send.
            let _ = sys::make_batch(thread);
        }
    }
}
