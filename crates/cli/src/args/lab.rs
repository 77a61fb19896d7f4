//! Arguments of `udpath lab`.

use std::ffi::OsString;

use super::value;

/// The default name of a lab.
const NAME: &str = "lab";

/// Arguments of `udpath lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Create a lab and keep it: machines, with a link between each pair
    Up {
        /// The lab's name: a-z, 0-9 and -
        #[arg(default_value = NAME)]
        name: String,
        /// Receive and transmit queues of each link's ends [default: one per online CPU]
        #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
        queues: Option<u32>,
        /// Names of the machines
        #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "client,server")]
        machines: Vec<String>,
        /// Machines that accept frames sent by XDP, as `load --engine kernel` sends them from another machine
        #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
        xdp: Vec<String>,
    },
    /// Run a program in a machine and return its exit code
    Exec {
        /// The machine; the lab's name may be omitted if there is only one lab
        #[arg(value_name = "[LAB/]MACHINE")]
        machine: String,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// List the labs of this machine
    List {
        /// Print one JSON document (udpath.lab/1)
        #[arg(long)]
        json: bool,
    },
    /// Remove labs
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Down {
        /// The lab with this name
        #[arg(group = "which")]
        name: Option<String>,
        /// Labs left behind by programs that were killed
        #[arg(long, group = "which")]
        stale: bool,
        /// Labs left behind, and all kept labs; labs of running programs are not removed
        #[arg(long, group = "which")]
        all: bool,
    },
}
