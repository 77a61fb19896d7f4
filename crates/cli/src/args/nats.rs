//! Arguments of fleets on a NATS server: those that `load` and `agent` share, and those of `load`.

use std::path::PathBuf;
use std::time::Duration;

use udpath_fleet::{Access, is_name, is_token};

use super::value;

/// How to reach the NATS server, and as whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AccessArgs {
    /// Fleet: its name; a caller and its agents have the same
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = name)]
    pub(crate) fleet_name: String,
    /// Fleet: credentials of a NATS user, a JWT and its nkey
    #[arg(long, value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    /// Fleet: seed of a NATS user's nkey
    #[arg(long, value_name = "FILE", conflicts_with = "creds")]
    pub(crate) nkey: Option<PathBuf>,
    /// Fleet: certificates that sign the server's (PEM); the connection must use TLS
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Fleet: certificate to show the server (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Fleet: key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl AccessArgs {
    /// With the address of the server.
    pub(crate) fn of(&self, server: &str) -> Access {
        Access {
            server: server.to_owned(),
            credentials: self.creds.clone(),
            nkey: self.nkey.clone(),
            ca: self.tls_ca.clone(),
            certificate: self.tls_cert.clone().zip(self.tls_key.clone()),
        }
    }
}

/// Arguments of a load by a fleet.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FleetArgs {
    /// Run the load on the agents of a fleet (`udpath agent`), which are connected to this NATS server
    #[arg(
        long,
        value_name = "nats://HOST:PORT",
        conflicts_with_all = ["segment", "start_at", "find_max", "lab", "sources"]
    )]
    pub(crate) fleet: Option<String>,
    /// Fleet: how many agents must take part [default: all that answer within --gather]
    #[arg(long, value_name = "N", value_parser = value::count::<u32>, requires = "fleet")]
    pub(crate) agents: Option<u32>,
    /// Fleet: how long to wait for agents
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = lead())]
    pub(crate) gather: Duration,
    /// Fleet: time for the agents to open their flows before the start
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = lead())]
    pub(crate) lead: Duration,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

fn lead() -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    value::duration_within(Duration::from_millis(100)..=Duration::from_secs(300))
}

/// A fleet's name.
fn name(text: &str) -> Result<String, String> {
    let valid = is_token(text).then(|| text.to_owned());
    valid.ok_or_else(|| format!("invalid name `{text}`: expected 1 to 64 letters, digits, - and _"))
}

/// An agent's name, such as that of its host.
pub(super) fn agent_name(text: &str) -> Result<String, String> {
    let valid = is_name(text).then(|| text.to_owned());
    valid.ok_or_else(|| {
        format!(
            "invalid name `{text}`: expected 1 to 253 letters, digits, - and _, and dots between them, such as \
             node1.example.net"
        )
    })
}
