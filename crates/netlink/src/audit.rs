//! The audit subsystem: whether system calls are audited, and who receives the records.

use crate::error::Error;
use crate::netfilter::unsupported;
use crate::socket::{Protocol, Socket};

/// `AUDIT_GET` of linux/audit.h.
const GET: u16 = 1000;

/// The state of auditing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// 0 off, 1 on, 2 on and locked.
    pub enabled: u32,
    /// The process that receives the records; 0 if there is none.
    pub pid: u32,
    /// Records lost.
    pub lost: u32,
}

/// A socket to the audit subsystem.
#[derive(Debug)]
pub struct Audit(Socket);

impl Audit {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Socket::open(Protocol::Audit)?))
    }

    /// The state of auditing.
    ///
    /// # Errors
    /// `EPERM` without CAP_AUDIT_CONTROL in the initial user namespace, `EOPNOTSUPP` if the kernel lacks auditing.
    pub fn status(&mut self) -> Result<Status, Error> {
        let answers = self.0.request_answered_later(GET, &[]).map_err(unsupported)?;
        let found = answers.bodies().find_map(parse);
        found.ok_or_else(|| Error::other("the audit system did not answer"))
    }
}

/// `struct audit_status`: mask, enabled, failure, pid, rate limit, backlog limit, lost, backlog.
fn parse(body: &[u8]) -> Option<Status> {
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(4 * at..)?.first_chunk()?));
    Some(Status { enabled: word(1)?, pid: word(3)?, lost: word(6)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_kernel_answers_or_says_why_not() {
        match Audit::open().unwrap().status() {
            Ok(status) => assert!(status.enabled <= 2, "{status:?}"),
            Err(error) => {
                let why_not = [libc::EOPNOTSUPP, libc::EPERM];
                assert!(error.errno.is_some_and(|errno| why_not.contains(&errno)), "{error:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}
