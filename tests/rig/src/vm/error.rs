//! What can go wrong between a description of an emulated machine and its command's exit code.

use std::io;
use std::path::PathBuf;

use udpath_lab::Error;

/// An emulated machine could not be made, or did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// The description makes no machine: a matter of arguments.
    #[error("{0}")]
    Spec(String),
    /// The lab around it.
    #[error(transparent)]
    Lab(#[from] Error),
    /// A program that is needed is not installed.
    #[error("there is no {program}; install it (Debian: apt-get install {package})")]
    NotInstalled {
        /// Its name.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// No kernel to boot.
    #[error(
        "no kernel package is unpacked in {}: {reason}; scripts/setup.sh fetches one there, --kernel names another place", directory.display()
    )]
    Kernel {
        /// Where it was looked for.
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
    /// A file for the machine.
    #[error("cannot {what} {}: {cause}", path.display())]
    File {
        /// `read`, ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A program's libraries are not known.
    #[error("cannot find the libraries of {}: {reason}", program.display())]
    Libraries {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// A system call on the way.
    #[error("cannot {what}: {cause}")]
    System {
        /// Operation and object.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// What the machine writes cannot be handed on; it was switched off.
    #[error("cannot hand on what the emulated machine writes: {0}")]
    Output(io::Error),
    /// The emulator itself gave up.
    #[error("qemu-system-x86_64 ended before the machine had: {words}")]
    Emulator {
        /// What it said.
        words: String,
    },
    /// The guest's kernel panicked.
    #[error("the emulated machine's kernel panicked:{lines}")]
    Panicked {
        /// Its console from there on.
        lines: String,
    },
    /// The machine went off and the command had not ended.
    #[error("the emulated machine went off before its command ended; its last lines:{lines}")]
    WentOff {
        /// The end of its console.
        lines: String,
    },
    /// Out of time.
    #[error("the emulated machine took longer than {seconds} s and was switched off; its last lines:{lines}")]
    Deadline {
        /// How long it had, seconds.
        seconds: u64,
        /// The end of its console.
        lines: String,
    },
    /// The caller wanted it to stop.
    #[error("the emulated machine was switched off before its command ended")]
    Stopped,
}
