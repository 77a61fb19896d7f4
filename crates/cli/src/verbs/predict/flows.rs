//! Many flows, from a list or from a capture.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use udpath_report::predict::NotCounted;
use udpath_stack::port::capture::Frames;
use udpath_stack::wire::flow_of;
use udpath_steer::Flow;

use crate::args::predict::{Args, To};
use crate::args::value::address;
use crate::exit::Failure;

/// Most different flows. Lower: one minute of a resolver does not fit. Higher: more memory, a few hundred bytes each.
const MOST: usize = 1 << 20;
/// Longest line, bytes. The longest valid one has two IPv6 addresses with ports and a number, about 130.
const LINE: usize = 1000;

/// Flows and their packets, each flow once, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Flows {
    list: Vec<(Flow, u64)>,
    places: HashMap<Flow, usize>,
    /// The frames of a capture that are no packets of them.
    not_counted: NotCounted,
}

impl Flows {
    /// The flows given by the arguments, if any.
    pub(super) fn read(args: &Args) -> Result<Option<Self>, Failure> {
        let mut flows = Self::default();
        let (path, foreign) = match (&args.flows, &args.capture) {
            (Some(path), _) => (path, flows.read_list(path, args.to.as_ref())?),
            (_, Some(path)) => (path, flows.read_capture(path, args.to.as_ref())?),
            (None, None) => return Ok(None),
        };
        if flows.list.is_empty() {
            let path = path.display();
            return Err(match foreign {
                0 => match flows.not_counted.text() {
                    Some(text) => anyhow!("{path} contains no flows: {text}"),
                    None => anyhow!("{path} contains no flows"),
                },
                _ => anyhow!("{path} contains no flows that match --to"),
            }
            .into());
        }
        Ok(Some(flows))
    }

    /// Adds packets of a flow.
    pub(super) fn add(&mut self, flow: Flow, packets: u64) -> Result<(), anyhow::Error> {
        let next = self.list.len();
        let at = *self.places.entry(flow).or_insert(next);
        match self.list.get_mut(at) {
            Some((_, known)) => *known = known.saturating_add(packets),
            None if next == MOST => {
                bail!("more than {MOST} different flows; select some with --to")
            }
            None => self.list.push((flow, packets)),
        }
        Ok(())
    }

    /// Each flow with its packets.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Flow, u64)> {
        self.list.iter()
    }

    /// The frames of the capture that are no packets of a flow, if there are any.
    pub(super) fn not_counted(&self) -> Option<&NotCounted> {
        let NotCounted { reasons, rest, .. } = &self.not_counted;
        (!reasons.is_empty() || rest.is_some()).then_some(&self.not_counted)
    }

    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.places.contains_key(flow)
    }

    /// Reads lines; returns the number of flows that `to` excluded.
    fn read_list(&mut self, path: &Path, to: Option<&To>) -> Result<u64, Failure> {
        let stdin = path == Path::new("-");
        let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
        let source: Box<dyn Read> = if stdin {
            Box::new(io::stdin().lock())
        } else {
            Box::new(udpath_files::input(path).with_context(|| format!("cannot open {name}"))?)
        };
        Ok(self.lines(&name, BufReader::new(source), to)?)
    }

    fn lines(&mut self, name: &str, mut from: impl BufRead, to: Option<&To>) -> Result<u64, anyhow::Error> {
        let mut foreign = 0;
        for number in 1_u64.. {
            let mut line = Vec::new();
            let read = from.by_ref().take(LINE as u64 + 1).read_until(b'\n', &mut line);
            if read.with_context(|| format!("cannot read {name}, line {number}"))? == 0 {
                break;
            }
            if line.len() > LINE {
                bail!("{name}, line {number} is longer than {LINE} characters: not a list of flows");
            }
            let text =
                str::from_utf8(&line).with_context(|| format!("{name}, line {number} is not UTF-8"))?;
            let parsed = flow(text).map_err(|what| anyhow!("{name}, line {number}: {what}"))?;
            let Some((flow, packets)) = parsed else { continue };
            if to.is_some_and(|to| !to.takes(&flow)) {
                foreign += 1;
                continue;
            }
            self.add(flow, packets).with_context(|| format!("{name}, line {number}"))?;
        }
        Ok(foreign)
    }

    /// Reads frames; returns the number of packets that `to` excluded.
    fn read_capture(&mut self, path: &Path, to: Option<&To>) -> Result<u64, Failure> {
        let cannot = |error: udpath_stack::port::capture::Error| Failure::Cannot(error.into());
        let mut frames = Frames::open(path).map_err(cannot)?;
        let (mut foreign, mut none) = (0_u64, NotCounted::default());
        while let Some(flow) = frames.look(flow_of).map_err(cannot)? {
            none.frames += 1;
            match flow {
                Err(refusal) => *none.reasons.entry(refusal.name().to_owned()).or_default() += 1,
                Ok(flow) if to.is_some_and(|to| !to.takes(&flow)) => foreign += 1,
                Ok(flow) => self.add(flow, 1).with_context(|| path.display().to_string())?,
            }
        }
        let beyond = frames.left_out();
        none.frames += beyond.links.values().sum::<u64>();
        none.reasons
            .extend(beyond.links.iter().map(|(link, count)| (format!("of link type {link}"), *count)));
        none.rest = beyond.end.as_ref().map(ToString::to_string);
        if let Some(text) = none.text() {
            stderrln!("{text}");
        }
        if none.frames == 0 {
            return Err(anyhow!("{} has no packets", path.display()).into());
        }
        self.not_counted = none;
        let both = self.list.iter().filter(|(flow, _)| self.has(&flow.reversed())).count();
        if both > 0 {
            stderrln!(
                "the capture has both directions of {} flows; both are counted: select one with --to PORT",
                both.div_ceil(2)
            );
        }
        Ok(foreign)
    }
}

/// Parses a line: `SRC:PORT DST:PORT [PACKETS]`, with comments after `#`. `None` for an empty line.
fn flow(line: &str) -> Result<Option<(Flow, u64)>, String> {
    let text = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let (source, destination, packets) = match words[..] {
        [] => return Ok(None),
        [source, destination] => (source, destination, "1"),
        [source, destination, packets] => (source, destination, packets),
        _ => return Err("expected SRC:PORT DST:PORT [PACKETS]".to_owned()),
    };
    let flow = Flow::udp(address(source)?, address(destination)?).map_err(|error| error.to_string())?;
    let packets = packets.parse().ok().filter(|packets| *packets > 0);
    let packets = packets.ok_or("invalid number of packets: expected a whole number, 1 or more")?;
    Ok(Some((flow, packets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, to: Option<&To>) -> Result<Flows, String> {
        let mut flows = Flows::default();
        let read = flows.lines("list", text.as_bytes(), to);
        read.map(|_| flows).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_list_has_comments_and_numbers_and_each_flow_once() {
        let text = "# who asks\n192.0.2.7:1 192.0.2.1:53\n\n  192.0.2.7:2 192.0.2.1:53 40 # busy\r\n\
                    [2001:db8::7]:1 [2001:db8::1]:53 2\n192.0.2.7:1\t192.0.2.1:53 9";
        let flows = read(text, None).unwrap();
        let packets: Vec<u64> = flows.iter().map(|(_, packets)| *packets).collect();
        assert_eq!(packets, [10, 40, 2]);
        let to = crate::args::predict::to("192.0.2.1:53").unwrap();
        assert_eq!(read(text, Some(&to)).unwrap().list.len(), 2);
    }

    /// A frame that is no packet is in the JSON, with its reason.
    #[test]
    fn frames_that_are_not_counted_are_data() {
        let mut frame = vec![0; 14 + 28];
        (frame[12], frame[14], frame[17], frame[23], frame[39]) = (8, 0x45, 28, 17, 8);
        let mut short = frame.clone();
        short[17] = 25;
        let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
        let read = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            let mut flows = Flows::default();
            flows.read_capture(file.path(), None).map(|_| flows)
        };
        assert!(
            matches!(read(&bytes), Err(Failure::Cannot(why)) if why.to_string().ends_with(" has no packets"))
        );
        for frame in [&frame, &short, &short] {
            bytes.extend([1, 0, 42, 42].map(u32::to_le_bytes).concat());
            bytes.extend(frame);
        }
        bytes.push(1);
        let flows = read(&bytes).unwrap_or_else(|_| panic!("it has a packet"));
        let none = flows.not_counted().unwrap();
        assert_eq!((none.frames, &none.reasons), (3, &[("udp_truncated".to_owned(), 2)].into()));
        assert!(
            none.text().unwrap().starts_with("of 3 frames, not counted: 2 udp_truncated, what follows: ")
        );
        let json = serde_json::to_value(none).unwrap();
        assert!(json["rest"].as_str().unwrap().contains("is truncated"), "{json}");
    }

    #[test]
    fn mistakes_name_their_line() {
        let long = format!("\n{}", "x".repeat(2000));
        for (text, told) in [
            ("\n\n192.0.2.7:1", "list, line 3: expected SRC:PORT DST:PORT [PACKETS]"),
            ("192.0.2.7 192.0.2.1:53", "line 1: invalid address `192.0.2.7`"),
            ("192.0.2.7:1 [::1]:53", "line 1: invalid flow from 192.0.2.7 to ::1"),
            ("192.0.2.7:1 192.0.2.1:53 0", "line 1: invalid number of packets"),
            ("192.0.2.7:1 192.0.2.1:53 -1", "line 1: invalid number of packets"),
            ("a b c d", "line 1: expected SRC:PORT"),
            (&long, "line 2 is longer than 1000 characters"),
        ] {
            let error = read(text, None).unwrap_err();
            assert!(error.contains(told), "{text:?}: {error}");
        }
        let mut flows = Flows::default();
        let error = flows.lines("list", &b"\xff\xfe\n"[..], None).unwrap_err();
        assert!(format!("{error:#}").contains("line 1 is not UTF-8"), "{error:#}");
    }
}
