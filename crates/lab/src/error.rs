//! What can go wrong between a description and a running lab.

use std::io;
use std::path::PathBuf;

use crate::SpecError;

/// A lab could not be built, used or removed. Each names the operation, the object and the cause.
///
/// The cause is part of the sentence, so it is not given a second time as [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description itself is wrong: a matter of arguments, not of this machine.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A system call about one object failed.
    #[error("cannot {what}: {cause}{}", help(cause))]
    System {
        /// Operation and object, as in `mount /sys in machine server`.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel refused an rtnetlink request.
    #[error("cannot {what}: {cause}{}{}", said(detail.as_deref()), help(cause))]
    Netlink {
        /// Operation and object, as in `create link client/eth0 - server/eth0`.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
        /// What the kernel said beside the number.
        detail: Option<String>,
    },
    /// A setting reads back as something else than was written.
    #[error(
        "{what} of {object} reads back as \"{found}\" after \"{wanted}\" was written; the kernel or driver does not take it"
    )]
    NotTaken {
        /// The setting.
        what: &'static str,
        /// `machine/interface`.
        object: String,
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// A transmit mapping that does not fit the interface.
    #[error(
        "{object} has {queues} transmit queues and the mapping has {given}; give one set of CPUs per queue"
    )]
    XpsLength {
        /// `machine/interface`.
        object: String,
        /// Its queues.
        queues: u32,
        /// Sets given.
        given: usize,
    },
    /// One queue: every CPU uses it, the kernel has nothing to set.
    #[error(
        "{object} has one transmit queue, so there is no transmit mapping to set; make the link with two or more"
    )]
    OneQueue {
        /// `machine/interface`.
        object: String,
    },
    /// No machine of that name in the lab.
    #[error("lab {lab} has no machine \"{machine}\"; it has {known}")]
    UnknownMachine {
        /// The lab.
        lab: String,
        /// The name asked for.
        machine: String,
        /// Those it has.
        known: String,
    },
    /// No such interface in the machine.
    #[error("machine {machine} has no interface \"{interface}\"; it has {known}")]
    UnknownInterface {
        /// The machine.
        machine: String,
        /// The name asked for.
        interface: String,
        /// Those it has.
        known: String,
    },
    /// Two machines without a link between them.
    #[error("machines {from} and {to} have no link; it has to be in the lab's description")]
    NotLinked {
        /// One machine.
        from: String,
        /// The other.
        to: String,
    },
    /// Something of the name is there already.
    #[error(
        "lab {name} exists already ({object}); choose another name, or remove it with `udpath lab down {name}`"
    )]
    Exists {
        /// The lab.
        name: String,
        /// What stands in the way.
        object: String,
    },
    /// No lab of that name.
    #[error("there is no lab \"{name}\"; {known}")]
    UnknownLab {
        /// The name asked for.
        name: String,
        /// A sentence about those that are there.
        known: String,
    },
    /// Several running programs have a lab of that name.
    #[error(
        "{count} running programs have a lab \"{name}\"; only a kept lab, or one that is alone of its name, can be meant"
    )]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// How many.
        count: usize,
    },
    /// The lab's owner lives.
    #[error(
        "lab {name} belongs to process {pid}, which is running; end that process and the lab goes with it"
    )]
    Owned {
        /// The lab.
        name: String,
        /// Its owner.
        pid: u32,
    },
    /// A lab was taken down, but not all of it.
    #[error("lab {name} is not wholly removed: {reasons}")]
    Remains {
        /// The lab.
        name: String,
        /// What is left and why.
        reasons: String,
    },
    /// A record that is not one of ours, or of a newer program.
    #[error("record {} cannot be obeyed: {reason}; remove the file if the lab it stands for is gone", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A machine cannot be removed by a process in it.
    #[error("this process is inside machine {machine}; take the lab down from outside")]
    Inside {
        /// The machine.
        machine: String,
    },
    /// A namespace of the right name that is not the one that was made.
    #[error("{} is not the namespace that the lab made, and is left alone; remove it yourself if it may go", path.display())]
    Foreign {
        /// Its name.
        path: PathBuf,
    },
    /// A condition did not come true in time.
    #[error("gave up after {seconds} s waiting for {what}")]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// A kept lab in a user namespace would end with the process.
    #[error(
        "a lab cannot be kept without root: it would end with this process; run as root, or use the lab within one program"
    )]
    KeptNeedsRoot,
    /// A user namespace is entered by a process with one thread only.
    #[error("cannot enter a user namespace with {threads} threads running; call it first thing in main")]
    Threads {
        /// Threads of this process.
        threads: usize,
    },
    /// The XDP program that brings NAPI could not be attached.
    #[error("cannot switch on NAPI at {object}: {cause}")]
    Napi {
        /// `machine/interface`.
        object: String,
        /// Why.
        cause: udpath_bpf::Error,
    },
    /// The lab's own thread that starts programs has ended.
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

    /// Is it a matter of rights?
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

/// What would make it possible.
fn help(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN are needed)",
        Some(libc::ENOSPC) => {
            "; too many namespaces or mounts: see /proc/sys/user and /proc/sys/fs/mount-max"
        }
        Some(libc::EMFILE | libc::ENFILE) => "; too many open files: raise the limit (ulimit -n)",
        _ => "",
    }
}

fn said(detail: Option<&str>) -> String {
    detail.map(|text| format!(" ({text})")).unwrap_or_default()
}
