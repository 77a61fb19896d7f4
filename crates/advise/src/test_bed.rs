//! Servers under test for those who build a lab of their own: started, measured and profiled as a climb does it.
//!
//! ```text
//!  caller's lab      machine `client` ══ link ══ machine A    start() ─▸ server, one of several
//!                            └────────── link ══ machine B    start() ─▸ server
//!                                                             trial()   one run of the plan against one of them
//!                                                             profile() an extra run, with all CPUs sampled
//! ```
//! What belongs to a machine or a link (queues, packet filters, offloads) is the caller's; what belongs to a server and
//! to the receive steering of its link is in its [`Settings`], and is set before each trial where it differs.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use udpath_lab::Lab;
use udpath_load::plan::Plan;
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_load::{Engine, Progress};

use crate::config::Launch;
use crate::diagnosis::Diagnosis;
use crate::judged::ProfileResult;
use crate::ladder::Settings;
pub use crate::server_under_test::{CLIENT, ServerUnderTest};
use crate::{Error, profiled, trial};

/// A lab with a machine [`CLIENT`], and the load that is sent from there.
pub struct TestBed<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The program whose `serve` runs the servers.
    pub program: &'a Path,
    /// What is served and requested.
    pub protocol: &'a dyn Protocol,
    /// What sends the load.
    pub engine: Engine,
    /// The load. Its targets are replaced by the address of the server that is measured.
    pub plan: Plan,
    /// Set when the measurements shall end.
    pub stop: &'a AtomicBool,
}

impl TestBed<'_> {
    /// Starts a server on a machine at `port`, with options of its service, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start, or its receive steering cannot be set.
    pub fn start(
        &self,
        machine: &'static str,
        port: u16,
        name: &str,
        settings: Settings,
        service: &[OsString],
    ) -> Result<ServerUnderTest, Error> {
        let launch = Launch { program: self.program, service, ipv6: false };
        let on = (machine, None);
        let server = ServerUnderTest::start(self.lab, &launch, self.protocol, on, name, settings, port)?;
        // Each trial sets it again; this call checks that it can be set at all.
        trial::set_receive_steering(self.lab, &server)
            .map_err(|cause| Error::NotPossible { rung: name.to_owned(), cause: cause.into() })?;
        Ok(server)
    }

    /// One run of the load against a server. None if it answered nothing, which is not an error.
    ///
    /// # Errors
    /// The load cannot be run, the server ended, or the measurements shall end.
    pub fn trial(&self, server: &mut ServerUnderTest) -> Result<Option<LoadResult>, Error> {
        self.trial_with(&self.plan, server)
    }

    /// The same with another plan.
    ///
    /// # Errors
    /// As of [`Self::trial`].
    pub fn trial_with(&self, plan: &Plan, server: &mut ServerUnderTest) -> Result<Option<LoadResult>, Error> {
        let plan = Plan { targets: vec![server.address], ..plan.clone() };
        let mut unwatched = |_: &Progress| ();
        let done =
            trial::run(self.lab, self.engine, &plan, self.protocol, server, &mut unwatched, self.stop)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if server.ended() {
            let reason = "it ended during a trial".into();
            return Err(Error::NotReady { rung: server.name.clone(), reason });
        }
        Ok(done)
    }

    /// The profile of an extra run against a server, and what limited it. The inner error is why there is none.
    ///
    /// # Errors
    /// The measurements shall end.
    pub fn profile(&self, server: &ServerUnderTest) -> Result<Result<Profiled, String>, Error> {
        let plan = Plan { targets: vec![server.address], ..self.plan.clone() };
        let taken = profiled::profile(self.lab, self.engine, &plan, self.protocol, server, self.stop);
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(taken.map(|(profile, diagnosis)| Profiled { profile, diagnosis }))
    }
}

/// A server's profile under load.
#[derive(Debug)]
pub struct Profiled {
    /// Where CPU time goes. Its datagrams are the load's transactions.
    pub profile: ProfileResult,
    /// The first saturated link; none if nothing has the server's port.
    pub diagnosis: Option<Diagnosis>,
}
