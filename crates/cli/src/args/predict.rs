//! Arguments of `udpath predict`.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use udpath_load::ends::without_zone;
use udpath_steer::reuseport::By;
use udpath_steer::toeplitz::{Fields, Key};
use udpath_steer::{CpuSet, Flow};

use super::place::PlaceArgs;
use super::settings::JournalArgs;
use super::{choice, value};

/// How long to watch packets.
const VERIFY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);

/// Arguments of `udpath predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Source of the datagrams; the port may be omitted with the --reverse options
    #[arg(value_name = "SRC:PORT", requires = "destination",
          required_unless_present_any = ["flows", "capture", "verify"], conflicts_with_all = ["flows", "capture"])]
    pub(crate) source: Option<String>,
    /// Destination of the datagrams
    #[arg(value_name = "DST:PORT", required_unless_present_any = ["flows", "capture", "verify"])]
    pub(crate) destination: Option<String>,
    /// Predict the distribution of many flows: a file, or - for standard input, with `SRC:PORT DST:PORT [PACKETS]` on
    /// each line
    #[arg(long, value_name = "FILE|-", conflicts_with = "capture")]
    pub(crate) flows: Option<PathBuf>,
    /// Predict the distribution of the flows in a capture (pcap or pcapng)
    #[arg(long, value_name = "FILE.pcap")]
    pub(crate) capture: Option<PathBuf>,
    /// Of many flows, use only those to this port, address, or both
    #[arg(long, value_name = "[ADDR:]PORT|ADDR", value_parser = to, conflicts_with = "source")]
    pub(crate) to: Option<To>,
    /// Compare predictions with the packets that the interface receives in this time: the given flows, or all UDP
    /// [default: 5s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
          value_parser = value::duration_within(VERIFY), requires = "interface", conflicts_with = "sysroot")]
    pub(crate) verify: Option<Duration>,
    /// Read the configuration of this interface; other options override it
    #[arg(long, value_name = "IFACE", conflicts_with = "tables")]
    pub(crate) interface: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    // Has the reuseport selections that udpath has set, where the kernel does not show them.
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
    /// Read the configuration from JSON (udpath.tables/1), `-` for standard input; other options override it
    #[arg(long, value_name = "FILE.json|-")]
    pub(crate) tables: Option<PathBuf>,
    /// RSS hash key as shown by ethtool -x, or microsoft, or symmetric
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Option<Key>,
    /// Driver, for its default settings
    #[arg(long, value_name = "NAME")]
    pub(crate) driver: Option<String>,
    /// UDP fields that the NIC hashes [default: the driver's, or sdfn without a driver]
    #[arg(long, value_name = "FIELDS", value_parser = fields())]
    pub(crate) fields: Option<Fields>,
    /// Indirection table: equal:N, weight:W,W,..., or a file with a JSON array of queues [default: all queues in turn]
    #[arg(long, value_name = "FILE|-|equal:N")]
    pub(crate) table: Option<String>,
    /// Entries of a table given as equal or weight [default: the driver's, or 128]
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) table_size: Option<usize>,
    /// Number of receive queues
    #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) queues: Option<u32>,
    /// RPS CPUs of every queue, such as 0-3,8; an empty list disables RPS
    #[arg(long, value_name = "LIST")]
    pub(crate) rps_cpus: Option<CpuSet>,
    /// CPUs of the queues' IRQs, such as 0-3,8: queue n uses the n-th CPU, starting over if there are more queues
    #[arg(long, value_name = "LIST")]
    pub(crate) irq_cpus: Option<CpuSet>,
    /// Number of sockets in the reuseport group
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) sockets: Option<usize>,
    /// How the group selects a socket
    #[arg(long, value_name = "SELECTION", requires = "sockets", value_parser = by())]
    pub(crate) by: Option<By>,
    /// Print source ports that reach this queue
    #[arg(long, value_name = "QUEUE", requires = "source", conflicts_with = "verify")]
    pub(crate) reverse: Option<u32>,
    /// Print source ports that reach this CPU, after RPS
    #[arg(long, value_name = "CPU", requires = "source", conflicts_with = "verify")]
    pub(crate) reverse_cpu: Option<u32>,
    /// Print source ports that reach this socket, in bind order from 0
    #[arg(long, value_name = "N", requires = "source", conflicts_with = "verify")]
    pub(crate) reverse_socket: Option<u32>,
    /// With --reverse options: source ports to try [default: 1024-65535]
    #[arg(long, value_name = "LOW-HIGH", value_parser = value::ports)]
    pub(crate) ports: Option<RangeInclusive<u16>>,
    /// With --reverse options: how many ports to print at most [default: 16]
    #[arg(long, value_name = "N", value_parser = value::count::<u16>)]
    pub(crate) count: Option<u16>,
    /// Print one JSON document (udpath.predict/2)
    #[arg(long)]
    pub(crate) json: bool,
}

fn fields() -> impl TypedValueParser<Value = Fields> {
    const FIELDS: &[(Fields, &str)] =
        &[(Fields::Addresses, "addresses only"), (Fields::AddressesPorts, "addresses and ports")];
    choice::one_of(FIELDS, |fields| match fields {
        Fields::Addresses => "sd",
        Fields::AddressesPorts => "sdfn",
    })
}

fn by() -> impl TypedValueParser<Value = By> {
    const SELECTIONS: &[((&str, By), &str)] = &[
        (("hash", By::Hash), "the kernel's hash of addresses and ports"),
        (("cpu", By::Cpu), "SO_INCOMING_CPU; socket n has CPU n"),
        (("cpu-modulo", By::CpuModulo), "a program: the CPU modulo the number of sockets (selection=by-cpu)"),
        (("cpu-index", By::CpuIndex), "a program: the CPU; by hash where there is no such socket"),
        (("rxhash", By::Rxhash), "the packet's hash"),
    ];
    choice::one_of(SELECTIONS, |(name, _)| name).map(|(_, by)| by)
}

/// An address, a port, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct To {
    address: Option<IpAddr>,
    port: Option<u16>,
}

impl To {
    /// Does the flow go there?
    pub(crate) fn takes(&self, flow: &Flow) -> bool {
        self.address.is_none_or(|address| address == flow.destination().ip())
            && self.port.is_none_or(|port| port == flow.destination_port)
    }

    pub(crate) const fn port(&self) -> Option<u16> {
        self.port
    }
}

/// `53`, `:53`, `192.0.2.1`, `192.0.2.1:53`, `[2001:db8::1]:53`.
pub(crate) fn to(text: &str) -> Result<To, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
        return Ok(To { address: None, port: Some(port) });
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(To { address: Some(address.to_canonical()), port: None });
    }
    // The same without a port.
    if let Some((address, zone)) = text.split_once('%')
        && let Ok(address) = address.parse::<Ipv6Addr>()
        && !zone.is_empty()
    {
        return Ok(To { address: Some(address.into()), port: None });
    }
    // Only the address itself is compared: this may be the map of another machine, with other interfaces.
    let (both, _zone) = without_zone(text).ok_or_else(|| {
        format!("`{text}` is neither a port nor an address: expected 53, 192.0.2.1, 192.0.2.1:53 or [2001:db8::1]:53")
    })?;
    Ok(To { address: Some(both.ip().to_canonical()), port: Some(both.port()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_flows_go_is_a_port_an_address_or_both() {
        let flow = Flow::udp("192.0.2.7:1".parse().unwrap(), "192.0.2.1:53".parse().unwrap()).unwrap();
        for text in ["53", ":53", "192.0.2.1", "192.0.2.1:53", "::ffff:192.0.2.1"] {
            assert!(to(text).unwrap().takes(&flow), "{text}");
        }
        for text in ["54", "192.0.2.2", "192.0.2.1:54", "::1"] {
            assert!(!to(text).unwrap().takes(&flow), "{text}");
        }
        assert!(to("[fe80::2%eth0]:4000").is_ok() && to("[fe80::2%7]:4000").is_ok());
        let scoped = to("fe80::2%eth0").unwrap();
        assert_eq!(scoped, To { address: Some("fe80::2".parse().unwrap()), port: None });
        assert!(to("fe80::2%").is_err() && to("192.0.2.1%eth0").is_err());
        assert!(to("dns").unwrap_err().contains("expected 53, 192.0.2.1"));
    }
}
