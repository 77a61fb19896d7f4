//! Errors of emulated machines, from an invalid description to a failed run.

use std::io;
use std::path::PathBuf;

use udpath_lab::Error;

/// An emulated machine could not be created, or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// The description is invalid: a usage error.
    #[error("{0}")]
    Spec(String),
    /// An error of the lab.
    #[error(transparent)]
    Lab(#[from] Error),
    /// A required program is not installed.
    #[error("{program} not found; install it (Debian: apt-get install {package})")]
    NotInstalled {
        /// Its name.
        program: &'static str,
        /// The Debian package that provides it.
        package: &'static str,
    },
    /// No kernel to boot.
    #[error(
        "no kernel package is unpacked in {}: {reason}; scripts/setup.sh fetches one, --kernel names another \
         directory", directory.display()
    )]
    Kernel {
        /// Where it was expected.
        directory: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The kernel package lacks a driver.
    #[error("Linux {release} has no module {module}")]
    NoModule {
        /// The kernel's release.
        release: String,
        /// The module.
        module: String,
    },
    /// An I/O error on a file for the machine.
    #[error("cannot {what} {}", path.display())]
    File {
        /// `read`, ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The libraries of a program cannot be determined.
    #[error("cannot find the libraries of {}: {reason}", program.display())]
    Libraries {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// Operation and object.
        what: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The machine's output cannot be forwarded; it was powered off.
    #[error("cannot forward the output of the emulated machine")]
    Output(#[source] io::Error),
    /// The emulator failed.
    #[error("qemu-system-x86_64 ended before the machine had: {words}")]
    Emulator {
        /// Its error message.
        words: String,
    },
    /// The guest's kernel panicked before its first process, in two boots.
    #[error("the emulated machine's kernel panicked twice before its first process:{lines}")]
    NotBooted {
        /// Its console from there on.
        lines: String,
    },
    /// The guest's kernel panicked.
    #[error("the emulated machine's kernel panicked:{lines}")]
    Panicked {
        /// Its console from there on.
        lines: String,
    },
    /// The machine powered off before the command finished.
    #[error("the emulated machine shut down before its command finished; its last lines:{lines}")]
    WentOff {
        /// The end of its console.
        lines: String,
    },
    /// The time limit expired.
    #[error("the emulated machine took longer than {seconds} s and was stopped; its last lines:{lines}")]
    Deadline {
        /// The limit, seconds.
        seconds: u64,
        /// The end of its console.
        lines: String,
    },
    /// The caller stopped it.
    #[error("the emulated machine was stopped before its command finished")]
    Stopped,
}
