//! The payloads of a capture's UDP datagrams to one port.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::path::Path;

use udpath_stack::port::capture::{Error, Frames};
use udpath_stack::wire::payload_of;

/// Most payloads, and most bytes of them: a capture of more is not a sample any more, and would fill the memory.
const MAX_PAYLOADS: usize = 8 << 20;
const MAX_BYTES: usize = 1 << 30;
/// Ports named in an error.
const NAMED_PORTS: usize = 5;

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaptureError {
    #[error("{}", with_source(.0))]
    Read(#[from] Error),
    #[error("{}", none(.left_out, *.port))]
    None { left_out: LeftOut, port: Option<u16> },
    #[error("it has datagrams to several ports ({0}): choose one with --port")]
    Ports(String),
    #[error("more than {MAX_PAYLOADS} datagrams, or 1 GiB: cut it into several (editcap -c)")]
    TooMuch,
}

fn with_source(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn none(left_out: &LeftOut, port: Option<u16>) -> String {
    let frames = left_out.frames;
    if frames == 0 {
        // A damaged one has an error of its own.
        return "it has no packets".to_owned();
    }
    let to = port.map_or_else(String::new, |port| format!(" to port {port}"));
    format!("none of its {frames} frames is a whole unicast UDP datagram with a payload{to}: {left_out}")
}

/// The frames of a capture that have no payload to send.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// All frames of the capture, those with payloads included.
    frames: u64,
    /// By their reason.
    reasons: BTreeMap<&'static str, u64>,
    other_ports: u64,
    /// What the file has beyond them, if it has.
    beyond: Option<String>,
}

impl LeftOut {
    /// What is to be said of them; `None` if every frame has a payload that is sent.
    pub(super) fn hint(&self) -> Option<String> {
        let text = self.to_string();
        (!text.is_empty()).then(|| format!("of the capture's {} frames, not sent: {text}", self.frames))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> =
            self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.extend((self.other_ports > 0).then(|| format!("{} to other ports", self.other_ports)));
        parts.extend(self.beyond.clone());
        f.write_str(&parts.join(", "))
    }
}

/// One or more payloads, one behind the other.
#[derive(Debug)]
pub(super) struct Payloads {
    bytes: Vec<u8>,
    /// Where each begins, and the end.
    starts: Vec<u32>,
    left_out: LeftOut,
}

impl Payloads {
    /// Reads those to `port` of the capture at `path`; without it, to the only port in the capture.
    pub(super) fn read(path: &Path, port: Option<u16>) -> Result<Self, CaptureError> {
        let port = match port {
            Some(port) => port,
            None => only_port(path)?,
        };
        let (left_out, mut other_ports) = (LeftOut::default(), 0);
        let (mut payloads, mut too_much) = (Self { bytes: Vec::new(), starts: vec![0], left_out }, false);
        let left_out = each(path, |of, payload| {
            if of != port || too_much {
                other_ports += u64::from(of != port);
                return;
            }
            too_much = payloads.count() >= MAX_PAYLOADS || payloads.bytes.len() + payload.len() > MAX_BYTES;
            if !too_much {
                payloads.bytes.extend_from_slice(payload);
                // At most 1 GiB.
                payloads.starts.push(payloads.bytes.len() as u32);
            }
        })?;
        let left_out = LeftOut { other_ports, ..left_out };
        match payloads.count() {
            _ if too_much => Err(CaptureError::TooMuch),
            0 => Err(CaptureError::None { left_out, port: Some(port) }),
            _ => Ok(Self { left_out, ..payloads }),
        }
    }

    /// What the capture has besides.
    pub(super) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of all.
    pub(super) fn total(&self) -> usize {
        self.bytes.len()
    }

    /// Payload `number`, from the first again behind the last.
    #[inline]
    pub(super) fn get(&self, number: u64) -> &[u8] {
        let index = (number % self.count() as u64) as usize;
        &self.bytes[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    /// Each payload, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count() as u64).map(|number| self.get(number))
    }
}

/// The only destination port in the capture.
fn only_port(path: &Path) -> Result<u16, CaptureError> {
    let mut ports = BTreeMap::<u16, u64>::new();
    let left_out = each(path, |port, _| *ports.entry(port).or_default() += 1)?;
    let mut ports: Vec<(u16, u64)> = ports.into_iter().collect();
    match ports[..] {
        [] => Err(CaptureError::None { left_out, port: None }),
        [(port, _)] => Ok(port),
        _ => {
            ports.sort_by_key(|(port, count)| (u64::MAX - count, *port));
            let named = ports.iter().take(NAMED_PORTS).map(|(port, count)| format!("{port}: {count}"));
            let mut named = named.collect::<Vec<_>>().join(", ");
            if ports.len() > NAMED_PORTS {
                named += ", ...";
            }
            Err(CaptureError::Ports(named))
        }
    }
}

/// Calls `of` with the destination port and the payload of each whole unicast datagram that has one; returns the
/// others.
fn each(path: &Path, mut of: impl FnMut(u16, &[u8])) -> Result<LeftOut, Error> {
    let (mut frames, mut left_out) = (Frames::open(path)?, LeftOut::default());
    let mut look = |frame: &[u8]| match payload_of(frame) {
        Ok((_, [])) => Some("without a payload"),
        Ok((port, payload)) => {
            of(port, payload);
            None
        }
        Err(refusal) => Some(refusal.name()),
    };
    while let Some(reason) = frames.look(&mut look)? {
        left_out.frames += 1;
        if let Some(reason) = reason {
            *left_out.reasons.entry(reason).or_default() += 1;
        }
    }
    let beyond = frames.left_out();
    left_out.frames += beyond.links.values().sum::<u64>();
    left_out.beyond = (!beyond.is_empty()).then(|| beyond.to_string());
    Ok(left_out)
}

#[cfg(test)]
mod tests;
