//! The load: each flow's requests are those of its part.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use udpath_load::plan::{MAX_SIZE, Plan};
use udpath_load::result::Kind;
use udpath_load::template::{self, Judgement, Lengths, Parts, Prepared, Protocol, Template};

use super::MIX;
use super::file::{self, MixError};
use super::shares::{MAX_SLOTS, slots};
use crate::{OptionError, Options};

/// A part with its protocol's side of the load.
#[derive(Clone)]
struct Part {
    protocol: Arc<dyn Protocol>,
    target: SocketAddr,
    lengths: Lengths,
}

/// Several protocols as one load.
pub struct MixLoad {
    parts: Vec<Part>,
    /// The part of each slot: flow i has slot i modulo their number.
    slots: Arc<[u16]>,
}

impl MixLoad {
    /// The mix in the file that `options` name, in run `run`.
    ///
    /// # Errors
    /// The file cannot be read; a line is not a part, or has an invalid option; the weights need too many flows.
    pub fn from_options(run: u64, options: &Options) -> Result<Self, OptionError> {
        let path = options.required_path(&MIX, "the file of the parts")?;
        let load = file::read(&path).and_then(|parts| Self::of(run, parts));
        load.map_err(|error| OptionError::Invalid {
            option: MIX.name,
            value: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    fn of(run: u64, lines: Vec<file::Part>) -> Result<Self, MixError> {
        let weights: Vec<u64> = lines.iter().map(|line| line.weight).collect();
        let slots = slots(&weights).ok_or(MixError::Weights(MAX_SLOTS))?.into();
        let parts = lines.into_iter().map(|line| Part::of(run, line)).collect::<Result<_, _>>()?;
        Ok(Self { parts, slots })
    }
}

impl Part {
    fn of(run: u64, part: file::Part) -> Result<Self, MixError> {
        let file::Part { line, entry, target, size, options, .. } = part;
        let protocol = (entry.load)(run, &options).map_err(|error| MixError::Option { line, error })?;
        let lengths = match (protocol.lengths(), size) {
            (Some(lengths), None) => lengths,
            (Some(_), Some(size)) => {
                let reason = format!("--size {size}: the requests of {} have their own lengths", entry.name);
                return Err(MixError::Line { line, reason });
            }
            (None, size) => {
                let size = size.unwrap_or(entry.size);
                Lengths { longest: size, mean: size }
            }
        };
        let (least, most) = (protocol.min_size(), protocol.max_size());
        if !(least..=most).contains(&lengths.longest) {
            let (size, name) = (lengths.longest, entry.name);
            let reason = format!("invalid --size {size}: requests of {name} have {least} to {most} bytes");
            return Err(MixError::Line { line, reason });
        }
        Ok(Self { protocol: protocol.into(), target, lengths })
    }

    /// Protocol and target: its name in results.
    fn name(&self) -> String {
        format!("{} {}", self.protocol.name(), self.target)
    }
}

impl Protocol for MixLoad {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn min_size(&self) -> usize {
        self.parts.iter().map(|part| part.lengths.longest).max().unwrap_or(1)
    }

    fn max_size(&self) -> usize {
        MAX_SIZE
    }

    fn one_size(&self) -> bool {
        false
    }

    fn lengths(&self) -> Option<Lengths> {
        let of_slots = self.slots.iter().filter_map(|slot| self.parts.get(usize::from(*slot)));
        let mean = of_slots.map(|part| part.lengths.mean).sum::<usize>() / self.slots.len().max(1);
        Some(Lengths { longest: self.min_size(), mean })
    }

    /// One per slot: flow i of a plan goes to target i modulo their number.
    fn targets(&self) -> Vec<SocketAddr> {
        let of_slots = self.slots.iter().filter_map(|slot| self.parts.get(usize::from(*slot)));
        of_slots.map(|part| part.target).collect()
    }

    /// Each part asks its own target.
    fn prepare(&self, plan: &Plan, timeout: Duration) -> Prepared {
        let mut parts = self.parts.clone();
        let mut changed = false;
        for part in &mut parts {
            let plan = Plan { targets: vec![part.target], ..plan.clone() };
            if let Some(prepared) = part.protocol.prepare(&plan, timeout)? {
                part.protocol = prepared.into();
                changed = true;
            }
        }
        Ok(changed.then(|| Box::new(Self { parts, slots: Arc::clone(&self.slots) }) as Box<dyn Protocol>))
    }

    fn ids(&self) -> u64 {
        self.parts.iter().map(|part| part.protocol.ids()).min().unwrap_or(u64::MAX)
    }

    fn parts(&self) -> Option<Parts<'_>> {
        let parts = self.parts.iter().map(|part| template::Part {
            name: part.name(),
            protocol: &*part.protocol,
            target: part.target,
            size: part.lengths.longest,
        });
        Some(Parts { parts: parts.collect(), slots: &self.slots })
    }

    fn template(&self) -> Box<dyn Template> {
        let parts = self.parts.iter().map(|part| PartTemplate {
            name: part.name(),
            size: part.lengths.longest,
            template: part.protocol.template(),
            intact: Cell::new(0),
            refused: Cell::new(0),
        });
        Box::new(MixTemplate { parts: parts.collect(), slots: Arc::clone(&self.slots) })
    }
}

/// Writes and judges by the template of the flow's part.
pub struct MixTemplate {
    parts: Vec<PartTemplate>,
    slots: Arc<[u16]>,
}

/// One part's requests and replies.
struct PartTemplate {
    name: String,
    /// Bytes of the longest request.
    size: usize,
    template: Box<dyn Template>,
    /// Intact replies so far.
    intact: Cell<u64>,
    /// Those of them that refuse.
    refused: Cell<u64>,
}

impl PartTemplate {
    /// Its replies, by what they say if they differ.
    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = self.template.kinds();
        for kind in &mut kinds {
            kind.name = format!("{}: {}", self.name, kind.name);
        }
        if kinds.is_empty() && self.intact.get() > 0 {
            kinds.push(Kind {
                name: self.name.clone(),
                count: self.intact.get(),
                refused: self.refused.get(),
            });
        }
        kinds
    }
}

impl MixTemplate {
    /// The index of the flow's part.
    #[inline]
    fn part(&self, flow: u32) -> usize {
        // Slots are parts, and one or more.
        usize::from(self.slots[flow as usize % self.slots.len()])
    }
}

impl Template for MixTemplate {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn min_size(&self) -> usize {
        self.parts.iter().map(|part| part.size).max().unwrap_or(1)
    }

    fn max_reply(&self, _size: usize) -> usize {
        self.parts.iter().map(|part| part.template.max_reply(part.size)).max().unwrap_or(1)
    }

    /// The fewest of any part: the others' upper bits are not used.
    fn seq_bits(&self) -> u32 {
        self.parts.iter().map(|part| part.template.seq_bits()).min().unwrap_or(u64::BITS)
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let part = self.part(flow);
        let part = &mut self.parts[part];
        part.template.write(flow, seq, &mut request[..part.size])
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let part = &self.parts[self.part(flow)];
        let judgement = part.template.check(flow, reply);
        if let Judgement::Valid { .. } | Judgement::Refused { .. } = judgement {
            part.intact.set(part.intact.get() + 1);
        }
        if let Judgement::Refused { .. } = judgement {
            part.refused.set(part.refused.get() + 1);
        }
        judgement
    }

    fn kinds(&self) -> Vec<Kind> {
        self.parts.iter().flat_map(PartTemplate::kinds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<MixLoad, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let mut options = Options::default();
        options.push(&MIX, file.path());
        MixLoad::from_options(7, &options).map_err(|error| error.to_string())
    }

    const THREE: &str = "50 dns 192.0.2.1:53\n25 ntp 192.0.2.2:123\n25 echo 192.0.2.3:7 --size 64\n";

    #[test]
    fn each_flow_has_its_part_and_its_target() {
        let load = load(THREE).unwrap();
        let targets = load.targets();
        // `example.org`: a header, 13 bytes, type and class.
        let dns = 12 + 13 + 4;
        assert_eq!(load.lengths(), Some(Lengths { longest: 64, mean: (2 * dns + 48 + 64) / 4 }));
        assert_eq!((targets.len(), load.ids(), load.template().seq_bits()), (4, 65_536, 16));
        assert_eq!(load.template().max_reply(64), 512);
        let mut template = load.template();
        let mut sizes = Vec::new();
        for flow in 0..8 {
            let mut request = [0xff; 64];
            let len = template.write(flow, 5, &mut request);
            let port = targets[flow as usize % 4].port();
            assert_eq!(
                len,
                match port {
                    53 => dns,
                    123 => 48,
                    _ => 64,
                },
                "flow {flow} to port {port}"
            );
            sizes.push(len);
            // What is intact for an echo is wrong for the others.
            let judged = template.check(flow, &request[..len]);
            let expected = if port == 7 { Judgement::Valid { seq: 5 } } else { Judgement::Corrupt };
            assert_eq!(judged, expected, "flow {flow}");
        }
        assert_eq!(template.kinds(), [Kind::new("echo 192.0.2.3:7", 2)]);
        assert_eq!(sizes[..4], sizes[4..]);
        assert_eq!(sizes.iter().filter(|len| **len == dns).count(), 4);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            (
                "1 echo 192.0.2.1:7\n1 dns 192.0.2.1:53 --types X\n",
                "line 2: invalid --types X: expected types",
            ),
            ("1 dns 192.0.2.1:53 --size 50", "line 1: --size 50: the requests of dns have their own lengths"),
            ("1 echo 192.0.2.1:7 --size 17", "line 1: invalid --size 17: requests of echo have 18 to"),
            (
                "1 ntp 192.0.2.1:123 --size 49",
                "line 1: invalid --size 49: requests of ntp have 48 to 48 bytes",
            ),
            ("999 echo 192.0.2.1:7\n2 ntp 192.0.2.1:123", "the weights need more than 1000 flows"),
            ("1 replay 192.0.2.1:53", "line 1: --pcap FILE is required"),
        ] {
            let error = load(text).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
        let none = MixLoad::from_options(7, &Options::default()).err().unwrap();
        assert_eq!(none.to_string(), "--mix FILE is required: name the file of the parts");
    }
}
