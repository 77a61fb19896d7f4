//! Workers with one port each, and sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::handler::Handler;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::memory::{End, pair};
use udpath_stack::socket::{Config, Error, Sockets, UdpSocket, join};
use udpath_stack::steering::Steering;
use udpath_stack::worker::{Parts, Worker};

use super::support::*;

pub(crate) const CHARGE: usize = 2048;
pub(crate) const FREE_FRAMES: usize = 8;

/// Workers with one port each, and sockets.
pub(crate) struct TestBed<H: Handler> {
    pub(crate) fars: Vec<End>,
    pub(crate) workers: Vec<Worker<End, H>>,
    pub(crate) sockets: Sockets,
    pub(crate) groups: Arc<Table<Groups>>,
    pub(crate) domain: Domain,
    pub(crate) binds: Vec<SocketAddr>,
}

/// The handler serves `binds` until sockets receive their datagrams.
pub(crate) fn bed<H: Handler>(
    binds: &[&str],
    pool: usize,
    backlog: usize,
    mut steering: Vec<Option<Steering>>,
    handler: impl Fn() -> H,
) -> TestBed<H> {
    let count = steering.len() as u16;
    let domain = Domain::new(usize::from(count) + 4, 8);
    let binds: Vec<SocketAddr> = binds.iter().map(|bind| bind.parse().unwrap()).collect();
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let mut rings = mesh(count, mesh::Config { backlog, frames: FRAMES }).unwrap();
    let sockets = join(&mut rings, Config { frames: FRAMES, free_frames: FREE_FRAMES, pool }).unwrap();
    assert!(matches!(join(&mut rings, Config::default()), Err(Error::Joined(0))));
    let (mut fars, mut workers) = (Vec::new(), Vec::new());
    for (rings, steering) in rings.into_iter().zip(&mut steering) {
        let (far, near) = pair(FRAMES).unwrap();
        fars.push(far);
        workers.push(Worker::new(Parts {
            port: Some(near),
            handler: handler(),
            reader: domain.register(format!("worker {}", rings.index())).unwrap(),
            groups: Arc::clone(&groups),
            rings,
            steering: steering.take(),
        }));
    }
    TestBed { fars, workers, sockets, groups, domain, binds }
}

impl<H: Handler> TestBed<H> {
    pub(crate) fn open(&self, bind: &str, limit: usize) -> UdpSocket {
        self.sockets.open(bind.parse().unwrap(), limit).unwrap()
    }

    pub(crate) fn deliver_to(&self, sockets: &[&UdpSocket]) {
        let handles: Vec<_> = sockets.iter().map(|socket| socket.handle()).collect();
        let groups = Groups::new(&self.binds, []).unwrap().delivering(&self.binds, &handles).unwrap();
        assert!(self.groups.publish(groups).is_ok());
    }

    /// Every frame of every port is back in its pool, except for the free frames that workers keep ready.
    pub(crate) fn assert_all_returned(&mut self) {
        run_until_idle(&mut self.workers);
        for (far, worker) in self.fars.iter().zip(&self.workers) {
            assert_eq!(far.outstanding(), 0, "requests' frames");
            assert_eq!(worker.port().unwrap().outstanding(), FREE_FRAMES, "the worker's own frames");
        }
    }

    pub(crate) fn frames(&self, far: usize) -> &End {
        &self.fars[far]
    }
}
