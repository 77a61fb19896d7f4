//! The end of the path: the sockets that a flow may reach on this machine, and their owners.

use std::collections::BTreeMap;

use udpath_host::receivers::Receivers;
use udpath_report::predict::{Reader, Receiver, Spreads};
use udpath_steer::Flow;
use udpath_steer::predict::{self, Predictor, Spread, Step, Why};

use super::flows::Flows;
use super::input::Known;

/// Sockets of the machine, or a plain number of sockets.
pub(super) struct Ends<'a> {
    machine: Option<(Receivers<'a>, u32)>,
    given: Option<predict::Receivers>,
    online: Option<u32>,
}

/// The sockets that one flow may reach.
pub(super) struct Reached<'a> {
    prepared: Prepared<'a>,
    /// Their owners, in bind order; empty if only the number of sockets is known.
    pub(super) list: Vec<Receiver<'a>>,
}

enum Prepared<'a> {
    Given(Option<&'a predict::Receivers>),
    Found(predict::Receivers),
}

impl<'a> Ends<'a> {
    pub(super) fn new(known: &'a Known) -> Self {
        let given = known.tables.sockets.as_ref().map(predict::Receivers::new);
        let machine = known.machine.as_ref().filter(|_| given.is_none());
        Self {
            machine: machine.map(|(snapshot, index)| (Receivers::new(snapshot), *index)),
            given,
            online: known.tables.online.as_ref().map(|online| online.len() as u32),
        }
    }

    /// The machine's sockets that the flow may reach, as a prediction's input; `None` if unknown.
    pub(super) fn sockets(&self, flow: &Flow) -> Option<predict::Sockets> {
        let (receivers, index) = self.machine.as_ref()?;
        Some(receivers.sockets(&receivers.of(flow, *index))).filter(|sockets| !sockets.cpus.is_empty())
    }

    /// The sockets that the flow may reach.
    pub(super) fn of(&self, flow: &Flow) -> Reached<'_> {
        let Some((receivers, index)) = &self.machine else {
            return Reached { prepared: Prepared::Given(self.given.as_ref()), list: Vec::new() };
        };
        let found = receivers.of(flow, *index);
        let list = (0..).zip(&found).map(|(socket, at)| end(receivers, socket, *at)).collect();
        Reached { prepared: Prepared::Found(predict::Receivers::new(&receivers.sockets(&found))), list }
    }
}

fn end<'a>(receivers: &Receivers<'a>, socket: usize, at: usize) -> Receiver<'a> {
    let it = receivers.socket(at);
    let processes = receivers.processes(at).map(|process| Reader {
        pid: process.pid,
        name: &process.name,
        threads: &process.threads,
    });
    Receiver { socket, local: it.local, inode: it.inode, processes: processes.collect() }
}

impl Reached<'_> {
    /// The same as the prediction's input.
    pub(super) fn prepared(&self) -> Option<&predict::Receivers> {
        match &self.prepared {
            Prepared::Given(given) => *given,
            Prepared::Found(found) => Some(found),
        }
    }
}

impl<'a> Ends<'a> {
    /// The distribution of the flows, and whether some socket was selected by SO_INCOMING_CPU.
    pub(super) fn spreads(&self, predictor: &Predictor, flows: &Flows) -> (Spreads<'a>, bool) {
        let (mut queue, mut cpu, mut socket) = (Spread::default(), Spread::default(), Spread::default());
        // Flows to one destination mostly share their sockets: prepare and name these once.
        let mut prepared = BTreeMap::<Vec<usize>, predict::Receivers>::new();
        let mut by_incoming_cpu = false;
        let (mut list, mut places) = (Vec::new(), BTreeMap::<usize, u32>::new());
        for (flow, packets) in flows.iter() {
            let (path, place) = match &self.machine {
                None => {
                    let path = predictor.decide(flow);
                    (path, path.socket.value)
                }
                Some((receivers, index)) => {
                    let found = receivers.of(flow, *index);
                    let group = prepared
                        .entry(found.clone())
                        .or_insert_with(|| predict::Receivers::new(&receivers.sockets(&found)));
                    let path = predictor.decide_among(flow, Some(group));
                    let place = path.socket.value.map(|socket| {
                        let at = found[socket as usize];
                        *places.entry(at).or_insert_with(|| {
                            list.push(end(receivers, list.len(), at));
                            list.len() as u32 - 1
                        })
                    });
                    (path, place)
                }
            };
            by_incoming_cpu |= path.socket.why == Why::IncomingCpu;
            queue.add(path.queue, *packets);
            cpu.add(path.rps, *packets);
            socket.add(Step { value: place, ..path.socket }, *packets);
        }
        let (queues, cpus) = (predictor.queues(), self.online);
        (Spreads { queue, cpu, socket, receivers: list, queues, cpus }, by_incoming_cpu)
    }
}
