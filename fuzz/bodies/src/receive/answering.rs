//! The handler of the workers, and what it answers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use udpath_stack::handler::{Datagram, Handler, Outcome};

/// How much longer some replies are than their requests.
const LONGER: usize = 40;

/// Source, destination and payload.
pub(super) type Request = (SocketAddr, SocketAddr, Vec<u8>);

/// Answers by the first byte of the payload, so that the input chooses.
pub(super) struct Answering {
    served: Rc<RefCell<Vec<Request>>>,
}

pub(super) enum Answer {
    Reply(Vec<u8>),
    Declined,
    /// Longer than any frame; true: it takes another path.
    Huge(bool),
}

pub(super) fn answer(payload: &[u8]) -> Answer {
    match payload.first() {
        Some(0) => Answer::Declined,
        Some(1) => Answer::Reply([payload, &[0xaa; LONGER]].concat()),
        Some(2) => Answer::Reply(Vec::new()),
        Some(3) => Answer::Huge(false),
        Some(4) => Answer::Huge(true),
        _ => Answer::Reply(payload.to_vec()),
    }
}

impl Answering {
    pub(super) fn new(served: &Rc<RefCell<Vec<Request>>>) -> Self {
        Self { served: Rc::clone(served) }
    }
}

impl Handler for Answering {
    fn handle(&mut self, datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
        let (source, destination) = (datagram.headers.source(), datagram.headers.destination());
        self.served.borrow_mut().push((source, destination, datagram.payload.to_vec()));
        match answer(datagram.payload) {
            Answer::Reply(reply) => {
                room[..reply.len()].copy_from_slice(&reply);
                Outcome::Reply(reply.len())
            }
            Answer::Declined => Outcome::Declined,
            Answer::Huge(_) => Outcome::Reply(9000),
        }
    }

    fn send_otherwise(&mut self, datagram: Datagram<'_>, _: &[u8]) -> bool {
        matches!(answer(datagram.payload), Answer::Huge(true))
    }
}
