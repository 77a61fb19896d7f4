//! The costs of a described machine as simulated time.

use crate::agenda::{NANOSECOND, Time};
use crate::costs::Terms;
use crate::description::{Description, Link, Transport};

/// Every cost of this machine, picoseconds.
#[derive(Debug)]
pub(crate) struct Durations {
    pub(crate) poll: Time,
    pub(crate) device_receive: Time,
    pub(crate) protocol_receive: Time,
    pub(crate) enqueue: Time,
    pub(crate) discard: Time,
    pub(crate) call: Time,
    pub(crate) read: Time,
    pub(crate) service: Time,
    pub(crate) send: Time,
    pub(crate) device_send: Time,
    pub(crate) sent: Time,
    pub(crate) interrupt: Time,
    pub(crate) steer: Time,
    pub(crate) ipi: Time,
    pub(crate) ipi_delay: Time,
    /// How much longer until a virtual CPU that sleeps runs.
    pub(crate) sleeping: Time,
    pub(crate) wake: Time,
    pub(crate) switch: Time,
}

impl Durations {
    pub(super) fn new(terms: &Terms, description: &Description) -> Self {
        let time = |nanoseconds: f64| (nanoseconds * NANOSECOND as f64).round() as Time;
        let (receive, send) = match description.transport {
            Transport::Udp => (0.0, 0.0),
            Transport::Tcp => (terms.tcp_receive, terms.tcp_send),
        };
        let virtual_ipi = |cost| if description.virtual_machine { cost } else { 0.0 };
        let generate = if description.link == Link::Veth { terms.generate } else { 0.0 };
        Self {
            poll: time(terms.poll),
            device_receive: time(terms.device_receive + generate),
            protocol_receive: time(terms.protocol_receive + receive),
            enqueue: time(terms.enqueue),
            discard: time(terms.discard),
            call: time(terms.call),
            read: time(terms.read),
            service: time(terms.service),
            send: time(terms.send + send),
            device_send: time(terms.device_send),
            sent: time(terms.sent),
            interrupt: time(terms.interrupt),
            steer: time(terms.steer),
            ipi: time(terms.ipi + virtual_ipi(terms.virtual_ipi)),
            ipi_delay: time(terms.ipi_delay),
            sleeping: time(virtual_ipi(terms.virtual_ipi_delay)),
            wake: time(terms.wake),
            switch: time(terms.switch),
        }
    }
}
