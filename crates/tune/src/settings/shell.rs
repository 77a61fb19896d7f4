//! A change as a shell command, using the system's own programs.

use udpath_host::shell::quoted;
use udpath_host::visible;

use super::row::Shell;
use super::{Setting, Value};
use crate::changed::spliced;

impl Setting {
    /// The command that sets it to `to` where it is `from`. Of a file of somebody else, it has only what changes.
    #[must_use]
    pub fn shell_from(&self, from: Option<&Value>, to: &Value) -> String {
        match (self, from, to) {
            (Self::Config(path), Some(Value::File(Some(old))), Value::File(Some(new))) => {
                spliced(path, old, new)
            }
            _ => self.shell(to),
        }
    }

    /// The command that sets it to `value`.
    #[must_use]
    pub fn shell(&self, value: &Value) -> String {
        match (self.row().shell, self.place()) {
            (Shell::Line(line), _) => line(self, value),
            (Shell::Echo, Some(place)) => {
                // Every value has a form; a value of another kind is a bug in the caller and is shown as is.
                let text = place.form.write(value).unwrap_or_else(|| value.to_string());
                format!("echo {} > {}", quoted(&text), quoted(&place.path))
            }
            (Shell::Echo, None) => comment(&format!("{self}={value}")),
        }
    }
}

/// A comment of the shell: one line, whatever is in it.
#[must_use]
pub fn comment(text: &str) -> String {
    format!("# {}", visible::line(text))
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
