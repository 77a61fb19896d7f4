//! Settings that are files of sysfs or procfs: the path, and the kernel's format of the value.

use std::collections::BTreeSet;

use udpath_steer::CpuSet;

use super::row::Access;
use super::{Setting, Value};

/// A kernel file and the format of its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// The format of the value.
    pub form: Form,
}

/// How a kernel file formats a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// CPUs in hexadecimal groups of 32.
    Mask,
    /// CPUs as a list.
    List,
    /// A decimal number.
    Number,
    /// 0 or 1.
    Bit,
    /// Words separated by blanks or tabs.
    Words,
}

impl Setting {
    /// The file, if its path follows from the name.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self.row().access {
            Access::File(path, form) => Some(Place { path: path(self), form }),
            Access::Driver { .. } | Access::QueueIrq | Access::Object => None,
        }
    }
}

impl Form {
    /// Parses the contents of the file.
    ///
    /// # Errors
    /// The contents are malformed; the error quotes them.
    pub fn read(self, text: &str) -> Result<Value, String> {
        let trimmed = text.trim();
        let none = |what: &str| format!("'{trimmed}' is no {what}");
        match self {
            Self::Mask => CpuSet::from_mask(trimmed).map(Value::Cpus).map_err(|error| error.to_string()),
            Self::List => CpuSet::from_list(trimmed).map(Value::Cpus).map_err(|error| error.to_string()),
            Self::Number => trimmed.parse().map(Value::Number).map_err(|_| none("number")),
            Self::Bit => match trimmed {
                "0" => Ok(Value::Switch(false)),
                "1" => Ok(Value::Switch(true)),
                _ => Err(none("0 or 1")),
            },
            Self::Words => Ok(Value::Words(trimmed.split_whitespace().collect::<Vec<_>>().join(" "))),
        }
    }

    /// The text to write to the file, without the newline; `None` for a value of another kind.
    #[must_use]
    pub fn write(self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Mask, Value::Cpus(cpus)) => Some(cpus.to_mask()),
            (Self::List, Value::Cpus(cpus)) => Some(cpus.to_string()),
            (Self::Number, Value::Number(number)) => Some(number.to_string()),
            (Self::Bit, Value::Switch(on)) => Some(u8::from(*on).to_string()),
            (Self::Words, Value::Words(words)) => Some(words.clone()),
            _ => None,
        }
    }
}

impl Value {
    /// The CPUs it names, if it names CPUs.
    #[must_use]
    pub fn cpus(&self) -> Option<&CpuSet> {
        match self {
            Self::Cpus(cpus) => Some(cpus),
            _ => None,
        }
    }

    /// The IRQs it names, if it names IRQs.
    #[must_use]
    pub fn irqs(&self) -> Option<&BTreeSet<u32>> {
        match self {
            Self::Irqs(irqs) => Some(irqs),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in prop::collection::btree_set(0_u32..300, 0..20), number: u64) {
            let value = Value::Cpus(cpus.into_iter().collect());
            for form in [Form::Mask, Form::List] {
                prop_assert_eq!(form.read(&form.write(&value).unwrap()).unwrap(), value.clone());
            }
            let value = Value::Number(number);
            prop_assert_eq!(Form::Number.read(&Form::Number.write(&value).unwrap()).unwrap(), value);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in ".{0,40}") {
            for form in [Form::Mask, Form::List, Form::Number, Form::Bit, Form::Words] {
                let _ = form.read(&text);
            }
        }
    }

    #[test]
    fn masks_are_those_of_the_kernel() {
        let place = "eth0:rps/rx-1".parse::<Setting>().unwrap().place().unwrap();
        assert_eq!(place.path, "/sys/class/net/eth0/queues/rx-1/rps_cpus");
        assert_eq!(place.form.write(&Value::Cpus((0..72).collect())).unwrap(), "ff,ffffffff,ffffffff");
        assert_eq!(place.form.read("00000000,0000000f\n").unwrap(), Value::Cpus((0..4).collect()));
        assert_eq!(Form::Mask.write(&Value::Number(1)), None);
    }
}
