//! The argument of programs that give up their privileges.

/// Whose process it is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct UserArgs {
    /// Once it is set up, run as this user without privileges; `root`: keep them all [default: udpath, or nobody]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}
