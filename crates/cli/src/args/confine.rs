//! The argument of programs that give up their privileges.

/// Whose process it is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct UserArgs {
    /// Once it is set up, run as this user without privileges; `root`: keep them all [default: udpath, or a free user
    /// number]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Fail if the kernel refuses Landlock or seccomp, instead of a warning
    #[arg(long)]
    pub(crate) require_confinement: bool,
}
