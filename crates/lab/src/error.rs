//! Errors between a description and a running lab.

use std::io;
use std::path::PathBuf;

use crate::SpecError;

/// A lab could not be built, used or removed. Each error names the operation and the object; the kernel's error is the
/// [source](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description itself is invalid: an argument error, independent of this machine.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A system call about one object failed.
    #[error("cannot {what}{}", help(cause))]
    System {
        /// Operation and object, as in `mount /sys in machine server`.
        what: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel rejected an rtnetlink request.
    #[error("cannot {what}{}{}", in_brackets(detail.as_deref()), help(cause))]
    Netlink {
        /// Operation and object, as in `create link client/eth0 - server/eth0`.
        what: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
        /// The kernel's extended error message.
        detail: Option<String>,
    },
    /// A setting reads back as a different value.
    #[error(
        "{what} of {object} reads back as \"{found}\" after \"{wanted}\" was written: the kernel or driver rejected it"
    )]
    NotTaken {
        /// The setting.
        what: &'static str,
        /// `machine/interface`.
        object: String,
        /// The requested value.
        wanted: String,
        /// The value read back.
        found: String,
    },
    /// A transmit mapping that does not fit the interface.
    #[error(
        "{object} has {queues} transmit queues and the mapping has {given}; give one set of CPUs per queue"
    )]
    XpsLength {
        /// `machine/interface`.
        object: String,
        /// Number of its queues.
        queues: u32,
        /// Number of sets given.
        given: usize,
    },
    /// Only one queue: every CPU uses it, there is nothing to set.
    #[error(
        "{object} has one transmit queue, so it has no transmit mapping; create the link with two or more queues"
    )]
    OneQueue {
        /// `machine/interface`.
        object: String,
    },
    /// The lab has no machine with that name.
    #[error("lab {lab} has no machine \"{machine}\"; it has {known}")]
    UnknownMachine {
        /// The lab.
        lab: String,
        /// The requested name.
        machine: String,
        /// The existing machines.
        known: String,
    },
    /// No such interface in the machine.
    #[error("machine {machine} has no interface \"{interface}\"; it has {known}")]
    UnknownInterface {
        /// The machine.
        machine: String,
        /// The requested name.
        interface: String,
        /// The existing interfaces.
        known: String,
    },
    /// Two machines without a common link.
    #[error("machines {from} and {to} have no link; add one to the lab's description")]
    NotLinked {
        /// One machine.
        from: String,
        /// The other.
        to: String,
    },
    /// An object with that name already exists.
    #[error(
        "lab {name} exists already ({object}); choose another name, or remove it with `udpath lab down {name}`"
    )]
    Exists {
        /// The lab.
        name: String,
        /// The conflicting object.
        object: String,
    },
    /// No lab has that name.
    #[error("there is no lab \"{name}\"; {known}")]
    UnknownLab {
        /// The requested name.
        name: String,
        /// A sentence that lists the existing labs.
        known: String,
    },
    /// Several running programs have a lab with that name.
    #[error(
        "{count} running programs have a lab \"{name}\"; the name must be unique unless the lab is kept (`udpath \
         lab up`)"
    )]
    Ambiguous {
        /// The requested name.
        name: String,
        /// Number of such labs.
        count: usize,
    },
    /// The lab's owner is still running.
    #[error(
        "lab {name} belongs to process {pid}, which is still running; the lab is removed when that process ends"
    )]
    Owned {
        /// The lab.
        name: String,
        /// Its owner.
        pid: u32,
    },
    /// A lab was taken down, but not all of it.
    #[error("lab {name} was not completely removed: {reasons}")]
    Remains {
        /// The lab.
        name: String,
        /// What is left, and why.
        reasons: String,
    },
    /// A record that udpath did not write, or written by a newer version.
    #[error("invalid lab record {}: {reason}; remove the file if its lab is gone", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        reason: String,
    },
    /// A machine cannot be removed by a process inside it.
    #[error("this process is inside machine {machine}; take the lab down from outside")]
    Inside {
        /// The machine.
        machine: String,
    },
    /// A namespace with the right name that is not the one that was created.
    #[error("{} is not the namespace that the lab created, so it was kept; remove it by hand if nothing needs it", path.display())]
    Foreign {
        /// Its name.
        path: PathBuf,
    },
    /// A condition was not met before the deadline.
    #[error("gave up after {seconds} s waiting for {what}")]
    Deadline {
        /// The condition.
        what: String,
        /// The timeout.
        seconds: u64,
    },
    /// A kept lab in a user namespace would end with the process.
    #[error(
        "a lab cannot be kept without root: it would end with this process; run as root, or use it within one program"
    )]
    KeptNeedsRoot,
    /// Only a single-threaded process can enter a user namespace.
    #[error("cannot enter a user namespace with {threads} threads running; call it at the start of main")]
    Threads {
        /// Number of threads of this process.
        threads: usize,
    },
    /// The XDP program that enables NAPI could not be attached.
    #[error("cannot enable NAPI on {object}")]
    Napi {
        /// `machine/interface`.
        object: String,
        /// The error.
        #[source]
        cause: udpath_bpf::Error,
    },
    /// The lab's spawner thread has ended.
    #[error("cannot start a program in lab {lab}: the lab has been taken down")]
    Down {
        /// The lab.
        lab: String,
    },
}

impl Error {
    /// `what`: operation and object.
    pub(crate) fn netlink(what: impl Into<String>, refused: udpath_netlink::Error) -> Self {
        let detail = refused.errno.and(refused.detail.clone());
        Self::Netlink { what: what.into(), cause: refused.into(), detail }
    }

    pub(crate) fn system(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), cause: cause.into() }
    }

    /// Whether it is a permission error.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            Self::System { cause, .. } | Self::Netlink { cause, .. } => {
                cause.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

/// A hint on how to fix it.
fn help(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (run as root: CAP_SYS_ADMIN and CAP_NET_ADMIN are needed)",
        Some(libc::ENOSPC) => {
            " (too many namespaces or mounts: see /proc/sys/user and /proc/sys/fs/mount-max)"
        }
        Some(libc::EMFILE | libc::ENFILE) => " (raise `ulimit -n`)",
        _ => "",
    }
}

fn in_brackets(detail: Option<&str>) -> String {
    detail.map(|text| format!(" ({text})")).unwrap_or_default()
}
