//! Resolves and classifies each chain once, and merges chains with equal names.
//!
//! ```text
//! addresses (samples)          names, each text once            lists of names, each once
//! ffffffff81a3 ffffffff81b7 ─▸ 7: udp_rcv   8: net_rx_action ─▸ 3: [8, 7]
//! ffffffff81a9 ffffffff81b7 ─────────────────────────────────▸ 3           the same functions, elsewhere in them
//! ```
//! A machine with many CPUs has a hundred thousand places and a few thousand lists; texts are joined only for stacks
//! that are kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::classes::{Class, Rules, Verdict};
use crate::context::Context;
use crate::recorder::Recording;
use crate::samples::{ChainId, Place};
use crate::symbols::user::UserFrame;

/// Functions of a thread that is receiving from a UDP socket.
const READING: [&str; 4] = ["udp_recvmsg", "udpv6_recvmsg", "__skb_recv_udp", "udp_poll"];

/// Names and classes of the chains.
pub(super) struct Named<'a> {
    recording: &'a Recording,
    kernel: HashMap<ChainId, Inside<'a>>,
    /// The same addresses have other names in another process.
    user: HashMap<(u32, ChainId), ListId>,
    names: Names,
}

/// A chain of the kernel.
struct Inside<'a> {
    verdict: Verdict<'a>,
    /// Does it receive from a UDP socket?
    reads: bool,
    names: ListId,
}

/// A list of names, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ListId(u32);

impl<'a> Named<'a> {
    pub(super) fn new(recording: &'a Recording, rules: &'a Rules) -> Self {
        let samples = &recording.samples;
        let (mut names, mut kernel, mut user) = (Names::default(), HashMap::new(), HashMap::new());
        for (place, _) in samples.tallies() {
            kernel.entry(place.kernel).or_insert_with(|| {
                let frames =
                    samples.chain(place.kernel).iter().map(|address| samples.kernel().frame(*address));
                let known = frames.clone().flatten();
                Inside {
                    verdict: rules.judge(known.clone()),
                    reads: known.clone().any(|frame| READING.contains(&frame.function)),
                    names: names
                        .list(frames.rev().map(|frame| frame.map_or("[kernel]", |frame| frame.function))),
                }
            });
            user.entry((place.pid, place.user)).or_insert(ListId(0));
        }
        let addresses = |(pid, chain): &(u32, ChainId)| {
            let pid = *pid;
            samples.chain(*chain).iter().map(move |address| (pid, *address))
        };
        // Each once: chains of one program share most addresses.
        let all: HashSet<(u32, u64)> = user.keys().flat_map(addresses).collect();
        let found = recording.programs.name(all);
        let found: HashMap<_, _> =
            found.into_iter().map(|(key, frame)| (key, names.name(&text(&frame)))).collect();
        for (key, list) in &mut user {
            let numbers: Vec<u32> = addresses(key).rev().map(|address| found[&address]).collect();
            *list = names.numbered(numbers);
        }
        Self { recording, kernel, user, names }
    }

    pub(super) fn verdict(&self, context: Context, kernel: ChainId) -> Verdict<'a> {
        match context {
            Context::User | Context::Guest => Verdict { class: Class::User, lock: None },
            Context::Idle => Verdict { class: Class::Idle, lock: None },
            _ => self.kernel[&kernel].verdict,
        }
    }

    /// The class of a context and the kernel's part of a chain, of a recorded sample.
    pub(super) fn class(&self, context: Context, kernel: ChainId) -> Class {
        self.verdict(context, kernel).class
    }

    /// Is this place receiving from a UDP socket?
    pub(super) fn reads(&self, place: &Place) -> bool {
        self.kernel[&place.kernel].reads
    }

    /// The program's functions and the kernel's.
    pub(super) fn lists(&self, place: &Place) -> [ListId; 2] {
        [self.user[&(place.pid, place.user)], self.kernel[&place.kernel].names]
    }

    /// The names of both lists, one list after the other, each from the outermost inwards.
    pub(super) fn frames(&self, lists: [ListId; 2]) -> impl Iterator<Item = &str> {
        let numbers = lists.into_iter().flat_map(|list| self.names.lists[list.0 as usize].iter());
        numbers.map(|number| &*self.names.texts[*number as usize])
    }

    /// The process's name and pid; `None` for interrupts.
    pub(super) fn process(&self, place: &Place) -> Option<(&'a str, u32)> {
        let own = !matches!(place.context, Context::HardIrq | Context::Softirq | Context::Idle);
        own.then(|| (self.recording.threads.name(place.pid), place.pid))
    }
}

/// A program's function for display.
fn text(frame: &UserFrame) -> String {
    match (&frame.binary, &frame.function) {
        (Some(binary), Some(function)) => format!("{function} [{binary}]"),
        (Some(binary), None) => format!("[{binary}]"),
        (None, _) => "[unknown]".to_owned(),
    }
}

/// Texts and lists of texts, each stored once.
#[derive(Default)]
struct Names {
    texts: Vec<Arc<str>>,
    known: HashMap<Arc<str>, u32>,
    lists: Vec<Arc<[u32]>>,
    known_lists: HashMap<Arc<[u32]>, ListId>,
}

impl Names {
    fn name(&mut self, text: &str) -> u32 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let (number, text): (_, Arc<str>) = (self.texts.len() as u32, text.into());
        self.texts.push(Arc::clone(&text));
        self.known.insert(text, number);
        number
    }

    fn list<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> ListId {
        let numbers = texts.map(|text| self.name(text)).collect();
        self.numbered(numbers)
    }

    fn numbered(&mut self, numbers: Vec<u32>) -> ListId {
        if let Some(known) = self.known_lists.get(numbers.as_slice()) {
            return *known;
        }
        let (id, numbers): (_, Arc<[u32]>) = (ListId(self.lists.len() as u32), numbers.into());
        self.lists.push(Arc::clone(&numbers));
        self.known_lists.insert(numbers, id);
        id
    }
}
