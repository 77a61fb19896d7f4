//! Where a machine is: its namespace, and the sockets by which it is asked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::namespace::{Inside, on_thread};
use crate::rtnl::Rtnl;
use crate::{Error, sys};

/// What is constant over a machine's life; its interfaces share it.
pub(crate) struct Site {
    pub(crate) lab: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    net: Arc<OwnedFd>,
    control: OwnedFd,
    rtnl: Mutex<Rtnl>,
}

impl Site {
    pub(crate) fn new(lab: &str, name: &str, namespace: &str, inside: Inside) -> Arc<Self> {
        Arc::new(Self {
            lab: lab.to_owned(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            net: Arc::new(inside.net),
            control: inside.control,
            rtnl: Mutex::new(inside.rtnl),
        })
    }

    pub(crate) fn net(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }

    /// For a process that outlives this one's use of it.
    pub(crate) fn shared_net(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.net)
    }

    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    pub(crate) fn rtnl<T>(
        &self,
        ask: impl FnOnce(&mut Rtnl) -> Result<T, udpath_netlink::Error>,
    ) -> Result<T, udpath_netlink::Error> {
        // A panic between request and answer leaves a stale answer; its sequence number identifies it.
        ask(&mut self.rtnl.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(&self.name, || {
            sys::enter_machine(self.net()).map_err(|source| {
                Error::system(format!("enter machine {} (network and /sys)", self.name), source)
            })?;
            Ok(work())
        })?
    }
}
