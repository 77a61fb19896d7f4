//! A change as a line that a person can run in a shell, with nothing of udpath.

use super::{Item, Setting, Table, Value};

impl Setting {
    /// The line that sets it to `value`.
    #[must_use]
    pub fn shell(&self, value: &Value) -> String {
        if let Some(place) = self.place() {
            // Every value has a form; another kind's is a mistake of the caller's and shows as itself.
            let text = place.form.write(value).unwrap_or_else(|| value.to_string());
            return format!("echo {} > {}", quoted(&text), quoted(&place.path));
        }
        match self {
            Self::Interface(interface, item) => of_interface(&quoted(interface), item, value),
            Self::Thread { tid, .. } => format!("taskset -pc {value} {tid}"),
            // No program of the system changes a socket of another process.
            Self::Socket { .. } => format!("udpath apply --set {}", quoted(&format!("{self}={value}"))),
            Self::IrqbalanceBan => {
                let irqs = value.irqs().filter(|irqs| !irqs.is_empty()).map_or("NONE".to_owned(), |irqs| {
                    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
                });
                format!(
                    "printf 'settings ban irqs {irqs}' | socat - UNIX-CONNECT:$(ls /run/irqbalance/irqbalance*.sock)"
                )
            }
            Self::File(path) => match value {
                Value::File(Some(text)) => {
                    let ends = if text.ends_with('\n') { "" } else { "\n" };
                    format!("cat > {} <<'UDPATH'\n{text}{ends}UDPATH", quoted(path))
                }
                _ => format!("rm -f {}", quoted(path)),
            },
            Self::Irq(_) | Self::Sysctl(_) => format!("# {self}={value}"),
        }
    }
}

fn of_interface(interface: &str, item: &Item, value: &Value) -> String {
    match item {
        Item::Channels(kind) => format!("ethtool -L {interface} {kind} {value}"),
        Item::Ring(ring) => format!("ethtool -G {interface} {ring} {value}"),
        Item::Coalesce(name) => format!("ethtool -C {interface} {name} {value}"),
        Item::Feature(name) => format!("ethtool -K {interface} {} {value}", quoted(name)),
        Item::RssTable => match value {
            Value::Table(Table::Equal(queues)) => format!("ethtool -X {interface} equal {queues}"),
            Value::Table(Table::Weights(weights)) => {
                let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
                format!("ethtool -X {interface} weight {}", weights.join(" "))
            }
            other => format!("# ethtool has no way to write every entry; {interface}:rss/table={other}"),
        },
        Item::RssKey => format!("ethtool -X {interface} hkey {value}"),
        Item::RssFunction => format!("ethtool -X {interface} hfunc {value}"),
        Item::Hash(flow) => format!("ethtool -N {interface} rx-flow-hash {flow} {value}"),
        Item::QueueIrq(queue) => {
            // Where the number is known, the line is that of the IRQ itself.
            format!(
                "# once its number N is known: echo {value} > /proc/irq/N/smp_affinity_list # {interface} rx-{queue}"
            )
        }
        Item::Qdisc => match value {
            Value::Words(kind) if kind == "default" => format!("tc qdisc del dev {interface} root"),
            kind => format!("tc qdisc replace dev {interface} root {kind}"),
        },
        // These have a place.
        Item::Rps(_)
        | Item::Rfs(_)
        | Item::Xps(_)
        | Item::XpsRxqs(_)
        | Item::Threaded
        | Item::DeferHardIrqs
        | Item::GroFlushTimeout => format!("# {interface}:{item}={value}"),
    }
}

/// A word as a shell takes it for itself.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./,:=+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_people_type() {
        let line = |name: &str, value: &str| {
            let setting: Setting = name.parse().unwrap();
            setting.shell(&setting.value(value).unwrap())
        };
        assert_eq!(line("eth0:rps/rx-0", "0-3"), "echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus");
        assert_eq!(line("eth0:rps/rx-0", "none"), "echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus");
        assert_eq!(line("eth0:channels/combined", "8"), "ethtool -L eth0 combined 8");
        assert_eq!(line("eth0:rss/table", "weight:2,1"), "ethtool -X eth0 weight 2 1");
        assert_eq!(line("eth0:hash/udp4", "sdfn"), "ethtool -N eth0 rx-flow-hash udp4 sdfn");
        assert_eq!(line("eth0:qdisc", "mq"), "tc qdisc replace dev eth0 root mq");
        assert_eq!(line("eth0:qdisc", "default"), "tc qdisc del dev eth0 root");
        assert_eq!(line("irq:57:affinity", "3"), "echo 3 > /proc/irq/57/smp_affinity_list");
        assert_eq!(line("sysctl:net.ipv4.udp_mem", "1 2 3"), "echo '1 2 3' > /proc/sys/net/ipv4/udp_mem");
        assert_eq!(
            line("socket:8/9:receive-buffer", "4194304"),
            "udpath apply --set socket:8/9:receive-buffer=4194304"
        );
        assert_eq!(line("e'0:qdisc", "mq"), r"tc qdisc replace dev 'e'\''0' root mq");
    }
}
