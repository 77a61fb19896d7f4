//! Which values a request may have, by type and range: what a plan accepts, the kernel's form accepts.
//!
//! Limits that only the device or the machine knows are in [`crate::plan`].

use udpath_host::interfaces::Fields;

use super::row::ValueKind;
use super::{Setting, Value, sysctl};

impl Setting {
    /// The value as it is written.
    ///
    /// # Errors
    /// It cannot be written; what can be.
    pub(super) fn fitting(&self, value: Value) -> Result<Value, String> {
        match (self.row().value, value) {
            (ValueKind::Number(unit, most), Value::Number(number)) if number > most => {
                Err(format!("a whole number up to {most} ({unit})"))
            }
            (ValueKind::OneOf(words), Value::Words(word)) if !words.contains(&word.as_str()) => {
                Err(format!("one of {}", words.join(", ")))
            }
            (ValueKind::HashFields, Value::Words(letters)) => match letters.parse::<Fields>() {
                Ok(_) => Ok(Value::Words(letters)),
                Err(why) => Err(why),
            },
            (_, Value::Words(text)) => match self {
                Self::Sysctl(path) => sysctl::fitting(path, &text).map(Value::Words),
                _ => Ok(Value::Words(text)),
            },
            (_, value) => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Access, Item, Part, PartKind, rows};
    use super::*;
    use crate::device::DeviceWriter;

    /// A setting of each row, on an interface that does not exist.
    fn settings() -> Vec<Setting> {
        let of = |row: &'static super::super::Row| {
            let part = match row.part {
                PartKind::Whole => Part::Whole,
                PartKind::Named(names) => Part::Name(names[0].to_owned()),
                PartKind::Free(_) => Part::Name("rx-gro".to_owned()),
                PartKind::RxQueue | PartKind::TxQueue => Part::Queue(0),
            };
            Setting::Interface("no-such-if".to_owned(), Item { row, part })
        };
        let others = [
            "irq:57:affinity",
            "sysctl:net.core.rmem_max",
            "sysctl:net.core.rps_default_mask",
            "sysctl:net.ipv4.udp_mem",
            "sysctl:net.ipv4.ip_local_port_range",
            "sysctl:net.core.default_qdisc",
            "sysctl:net.ipv4.udp_early_demux",
            "thread:8/9:affinity",
            "socket:8/9:receive-buffer",
            "socket:8/9:busy-poll-budget",
            "socket:8/9:incoming-cpu",
            "group:8/9:selection",
            "policy:/a/receive-buffer",
            "policy:/a/mark",
            "irqbalance:ban",
        ];
        rows().map(of).chain(others.iter().map(|name| name.parse().unwrap())).collect()
    }

    /// Whether what writes the setting takes the value: errors are the system's alone.
    fn is_written(setting: &Setting, value: &Value) -> Result<(), String> {
        match (setting, setting.row().access) {
            (_, Access::File(..)) => {
                let place = setting.place().ok_or("no place")?;
                let text = place.form.write(value).ok_or("the file's form does not have it")?;
                place.form.read(&text).map(drop)
            }
            (_, Access::Driver { write, .. }) => {
                let target = setting.target().ok_or("no target")?;
                match write(&target, &mut DeviceWriter::open(), value) {
                    Err(refusal) if refusal.errno.is_none() => Err(refusal.to_string()),
                    _ => Ok(()),
                }
            }
            (Setting::Socket { setting, .. }, _) => {
                value.for_socket(*setting).map(drop).ok_or("no socket's".into())
            }
            (Setting::Policy { .. }, _) => value.for_policy().map(drop).ok_or("no policy's".into()),
            (_, Access::QueueIrq) => value.cpus().map(drop).ok_or("no CPUs".into()),
            (Setting::IrqbalanceBan, _) => value.irqs().map(drop).ok_or("no IRQs".into()),
            _ => Ok(()),
        }
    }

    proptest! {
        #[test]
        fn what_a_plan_accepts_the_writers_form_accepts(
            text in "([0-9]{1,20}|[0-9]{1,4}[kKmMgG]|[0-9,-]{1,12}|[a-z_0-9]{1,9}|[mvtsdfnrb]{1,8}|equal:[0-9]{1,9}|\
                     weight:[0-9,]{1,9}|([0-9a-f]{2}:){1,5}[0-9a-f]{2}|on|off|none|any|mq|fq|toeplitz|1 2 3|[ -~]{0,20})"
        ) {
            for setting in settings() {
                let Ok(value) = setting.value(&text) else { continue };
                let value = setting.as_kept(value);
                let written = is_written(&setting, &value);
                prop_assert!(written.is_ok(), "{setting}={text} is {value}: {written:?}");
                // And the journal's text of it is the same value.
                prop_assert_eq!(setting.decode(Setting::encode(&value).as_deref()), Ok(value));
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_right_form() {
        for (name, value, says) in [
            ("eth0:ring/rx", "4294967296", "up to 4294967295 (descriptors)"),
            ("eth0:rfs/rx-0", "99999999999", "up to 536870912"),
            ("eth0:napi/defer-hard-irqs", "2147483648", "up to 2147483647"),
            ("eth0:qdisc", "no-such", "one of default, mq, fq"),
            ("eth0:rss/function", "md5", "toeplitz, xor, crc32"),
            ("sysctl:net.core.rmem_max", "8MB", "bytes"),
            ("sysctl:net.core.rmem_max", "2G", "2147483647"),
            ("sysctl:net.core.netdev_budget", "8k", "a whole number"),
            ("sysctl:net.ipv4.udp_mem", "3 2 1", "ascending"),
            ("sysctl:net.ipv4.ip_local_port_range", "60000 1", "two ports"),
            ("sysctl:net.ipv4.udp_early_demux", "yes", "0 or 1"),
            ("sysctl:net.core.default_qdisc", "mq; x", "one of"),
        ] {
            let error = name.parse::<Setting>().unwrap().value(value).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(name), "{error}");
        }
        let value =
            |name: &str, text: &str| name.parse::<Setting>().unwrap().value(text).unwrap().to_string();
        assert_eq!(value("sysctl:net.core.rmem_max", "8M"), "8388608");
        assert_eq!(value("sysctl:net.ipv4.udp_mem", "1 2\t3"), "1 2 3");
        // What the kernel has shown is read, whatever it is: undo writes it again.
        let old: Setting = "sysctl:net.core.default_qdisc".parse().unwrap();
        assert_eq!(old.decode(Some("odd")).unwrap(), Value::Words("odd".into()));
    }
}
