//! Arguments of `udpath agent`.

use std::path::PathBuf;
use std::time::Duration;

use udpath_fleet::{Allowed, Limits};

use super::confine::UserArgs;
use super::nats::{self, AccessArgs};
use super::value;

/// Arguments of `udpath agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The NATS server
    #[arg(long, value_name = "nats://HOST:PORT")]
    pub(crate) nats: String,
    /// This agent's name, which no other agent of the fleet has [default: the host's name]
    #[arg(long, value_name = "NAME", value_parser = nats::agent_name)]
    pub(crate) name: Option<String>,
    /// Targets that loads may send to; repeatable
    #[arg(long, value_name = "ADDR[/PREFIX][:PORTS]", required = true)]
    pub(crate) allow: Vec<Allowed>,
    /// Transactions per second of this machine at most; `none`: any rate, closed loops too
    #[arg(long, default_value = "100k", value_name = "RATE", value_parser = max_rate)]
    pub(crate) max_rate: MaxRate,
    /// Bits per second of this machine at most, IP headers included; `none`: any [default: 1G, none with --max-rate
    /// none]
    #[arg(long, value_name = "BITS", value_parser = max_rate)]
    pub(crate) max_bandwidth: Option<MaxRate>,
    /// Longest warm-up and duration together
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = max_time())]
    pub(crate) max_time: Duration,
    /// Longest timeout of a request; replies are awaited for up to twice as long after the load
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = max_time())]
    pub(crate) max_timeout: Duration,
    /// Flows of this machine at most, each of which is a socket
    #[arg(long, default_value = "4096", value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) max_flows: u32,
    /// Memory at most for flows, their buffers, requests in flight and threads, estimated before a load begins
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = value::size)]
    pub(crate) max_memory: usize,
    /// An option of protocols that loads may set, without the dashes; options can name files of this machine;
    /// repeatable
    #[arg(long, value_name = "OPTION")]
    pub(crate) allow_option: Vec<String>,
    /// Keep each result in this folder, as NAME.START.json
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Results that are kept at most; the oldest of this agent are removed
    #[arg(long, default_value = "1000", value_name = "N", value_parser = value::count::<u32>, requires = "results")]
    pub(crate) max_results: u32,
    /// Size of all kept results at most; the oldest of this agent are removed
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = value::size, requires = "results")]
    pub(crate) max_results_size: usize,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Bits per second without --max-bandwidth: a network of 1 Gbit/s. More: an agent with all defaults fills a faster one.
const DEFAULT_BITS: f64 = 1e9;

/// A limit, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MaxRate(Option<f64>);

impl Args {
    /// What the agent accepts.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            targets: self.allow.clone(),
            rate: self.max_rate.0,
            bits: match self.max_bandwidth {
                Some(bits) => bits.0,
                None => self.max_rate.0.and(Some(DEFAULT_BITS)),
            },
            time: self.max_time,
            timeout: self.max_timeout,
            flows: self.max_flows,
            memory: self.max_memory as u64,
            options: self.allow_option.clone(),
        }
    }
}

fn max_rate(text: &str) -> Result<MaxRate, String> {
    match text {
        "none" => Ok(MaxRate(None)),
        _ => match value::rate(text)? {
            rate if rate > 0.0 => Ok(MaxRate(Some(rate))),
            _ => Err(format!("invalid rate `{text}`: expected a rate above 0, such as 100k, or none")),
        },
    }
}

fn max_time() -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    value::duration_within(Duration::from_millis(10)..=udpath_load::plan::MAX_TIME)
}
