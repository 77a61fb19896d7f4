//! Arguments of the verbs that change settings: the requested changes, and the journal.

use std::path::PathBuf;

use udpath_tune::journal::DIRECTORY;

use super::place::NetnsArgs;

/// The requested changes, and what is allowed.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArgs {
    /// A plan as JSON (udpath.plan/2), as written by `udpath plan --json`; `-` is standard input
    #[arg(value_name = "PLAN.json|-", required_unless_present_any = ["set", "service"])]
    pub(crate) file: Option<PathBuf>,
    /// A setting, such as eth0:rps/rx-0=0-3, eth0:channels/combined=8, irq:57:affinity=3,
    /// sysctl:net.core.rmem_max=4194304 or socket:812/4026:receive-buffer=8388608; repeatable; rx-* and tx-* are all
    /// queues; port:53:receive-buffer, port:53:selection=by-cpu and port:53:threads=one-per-cpu apply to the process
    /// that serves the port now
    #[arg(long, value_name = "SETTING=VALUE")]
    pub(crate) set: Vec<String>,
    /// The configuration of the server on a port, as in 53, or of a process, as in pid/812: what its authors' guide
    /// would change for its CPUs; repeatable. --set service:53:KNOB=VALUE changes one knob
    #[arg(long, value_name = "PORT|pid/PID")]
    pub(crate) service: Vec<String>,
    /// How a server whose configuration changes is restarted: a command for /bin/sh [default: systemctl restart UNIT]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart: Option<String>,
    /// Reason, for the journal; reasons in a plan are kept
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// Allow changing SETTING even though it is not known to be harmless, or destroys something that undo cannot
    /// restore; or every setting that is not known to be harmless (insecure); or changes of files of a server's
    /// configuration (config), its restart (restart), and knobs that have a security advisory (security); repeatable
    #[arg(long, value_name = "SETTING|insecure|config|restart|security")]
    pub(crate) allow: Vec<String>,
    /// Ignore a conflict with another program that changes the same settings; repeatable
    #[arg(long = "ignore-conflict", value_name = "irqbalance|tuned", value_parser = ["irqbalance", "tuned"])]
    pub(crate) ignore_conflicts: Vec<String>,
}

/// The location of the journal.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct JournalArgs {
    /// Journal folder
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub(crate) state: PathBuf,
}

/// Common arguments of the verbs that use the journal.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
    #[command(flatten)]
    pub(crate) netns: NetnsArgs,
}
