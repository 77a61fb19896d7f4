//! Warnings about frames that the kernel dropped.

use crate::status::{Arrivals, XdpPortStatus};

/// Warnings about frames in `arrivals` that were dropped, from the first frame on.
pub(super) fn losses(ports: &[XdpPortStatus], arrivals: &Arrivals) -> Vec<String> {
    let mut warnings = Vec::new();
    for (worker, (port, received)) in ports.iter().zip(&arrivals.received).enumerate() {
        let name = &port.name;
        let slow = format!(
            "worker {worker} is too slow or gets too little CPU time; steer frames to more workers (--steer), use \
             more queues, or free its CPU"
        );
        if received.ring_full > 0 {
            warnings.push(format!(
                "{name}: frames are dropped because the receive ring is full (receive_ring_full): {slow}"
            ));
        }
        if received.no_frame > 0 {
            warnings.push(format!(
                "{name}: frames are dropped because the fill ring is empty (fill_ring_empty): {slow}"
            ));
        }
        if received.fill_ring_empty > received.no_frame {
            warnings.push(format!(
                "{name}: the driver finds the fill ring empty and drops frames (see `ethtool -S`): {slow}"
            ));
        }
        if received.invalid + received.transmit_invalid > 0 {
            warnings.push(format!(
                "{name}: frames are dropped because of invalid ring descriptors: this is a bug in udpath; please report it"
            ));
        }
    }
    if arrivals.redirect_failed > 0 {
        warnings.push(
            "frames are dropped between the program and the queues' sockets (redirect_failed): an interface or its \
             queues changed; restart the server"
                .into(),
        );
    }
    warnings
}
