//! The mirror as its owner sees it: started, queried, stopped.

use std::thread::JoinHandle;
use std::time::Instant;

use super::model::Model;
use super::netlink::Netlink;
use super::status::{MirrorError, State, Status};
use super::{EVERYTHING, Follower, Read};
use crate::epoch::Domain;
use crate::primitive::{Arc, Mutex, lock};
use crate::tables::Tables;
use crate::tables::resolve::{Requests, Resolver};

/// Keeps tables in step with the kernel's, for the network namespace it was started in, until it is dropped.
#[derive(Debug)]
pub struct Mirror {
    tables: Arc<Tables>,
    requests: Arc<Requests>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts mirroring the calling thread's network namespace. When it returns, the tables are complete. `domain` is
    /// the one that the tables' readers are registered with.
    ///
    /// # Errors
    /// The socket or the thread cannot be created, or the kernel's tables cannot be read.
    pub fn start(domain: &Domain) -> Result<Self, MirrorError> {
        let netlink = Netlink::open()
            .map_err(|cause| MirrorError::System { what: "open and subscribe an rtnetlink socket", cause })?;
        let tables = Arc::new(Tables::new(domain));
        let requests = Arc::new(
            Requests::new().map_err(|cause| MirrorError::System { what: "make an eventfd", cause })?,
        );
        let status = Arc::new(Mutex::new(Status::default()));
        let mut follower = Follower {
            netlink,
            model: Model::default(),
            tables: Arc::clone(&tables),
            domain: domain.clone(),
            requests: Arc::clone(&requests),
            status: Status::default(),
            shown: Arc::clone(&status),
            generation: 0,
            lost: false,
            publish_at: Instant::now(),
            read_at: Instant::now(),
        };
        match follower.read(&EVERYTHING) {
            Read::Done | Read::Stopped => {}
            Read::Failed(error) => return Err(error),
            Read::Overrun(what) => return Err(MirrorError::Unsettled { what }),
        }
        follower.publish();
        if let State::Held(stalled) = follower.status.state {
            return Err(MirrorError::Stalled(stalled));
        }
        follower.show();
        let thread = std::thread::Builder::new()
            .name("udpath-mirror".to_owned())
            .spawn(move || follower.run())
            .map_err(|cause| MirrorError::System { what: "start the mirror's thread", cause })?;
        Ok(Self { tables, requests, status, thread: Some(thread) })
    }

    /// The tables, for workers. They stay valid, but no longer change, after the mirror is dropped.
    #[must_use]
    pub fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables)
    }

    /// A resolver that requests neighbour resolution from the kernel.
    #[must_use]
    pub fn resolver(&self) -> Resolver {
        Resolver::new(Arc::clone(&self.requests), Arc::clone(&self.tables))
    }

    /// Its state and counters.
    #[must_use]
    pub fn status(&self) -> Status {
        // Checked first: a thread that ends publishes that before it ends.
        let gone = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let mut status = lock(&self.status).clone();
        if gone && !matches!(status.state, State::Ended(_)) {
            status.state = State::Ended("the mirror's thread panicked".to_owned());
        }
        status
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.requests.stop();
        if let Some(thread) = self.thread.take() {
            // It panicked: its state is gone, but the published tables stay.
            let _ = thread.join();
        }
    }
}
