//! The network card's part of the path: flow rules, then hash and indirection table.
//!
//! ```text
//! flow ─▸ rules ──none──▸ main RSS context ──▸ queue
//!           ├── queue N, or dropped, or a virtual function's
//!           └── another RSS context ─▸ its own table and key ─▸ queue
//! ```

use std::collections::BTreeMap;

use super::{Step, Tables, Why};
use crate::drivers::{self, Driver};
use crate::flow::Flow;
use crate::predict::HashFunction;
use crate::rss::IndirectionTable;
use crate::rules::{FlowAction, FlowRules, RuleMatch};
use crate::toeplitz::{Fields, Toeplitz, Transform};

/// A card prepared for many flows.
#[derive(Debug)]
pub(super) struct Nic {
    rules: FlowRules,
    main: Context,
    contexts: BTreeMap<u32, Context>,
    /// Number of queues.
    queues: Option<u32>,
    senders_queue: bool,
}

/// The result of a card receiving a flow's packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct NicResult {
    /// The hash that it computes.
    pub(super) hash: Step,
    /// The queue.
    pub(super) queue: Step,
    /// The hash that RPS and programs see.
    pub(super) seen: Step,
    /// Why they do not reach this host's stack, if so.
    pub(super) gone: Option<Why>,
}

/// An RSS context.
#[derive(Debug)]
struct Context {
    hash: Hash,
    table: Option<IndirectionTable>,
    /// The queue of all entries, if they are equal.
    only: Option<u32>,
}

/// The hash of a context.
#[derive(Debug)]
struct Hash {
    key: Result<Toeplitz, Why>,
    udp4: Result<Fields, Why>,
    udp6: Result<Fields, Why>,
    transform: Transform,
    /// Whether the driver passes it on, so that RPS and programs see the same hash.
    passed_on: Option<bool>,
}

impl Nic {
    /// A card with these tables, which are consistent.
    pub(super) fn new(tables: &Tables) -> Self {
        let driver = tables.driver.as_deref().and_then(drivers::find);
        let contexts = tables.contexts.iter().map(|(&number, own)| {
            let whole = Tables {
                function: own.function.or(tables.function),
                key: own.key.clone().or_else(|| tables.key.clone()),
                transform: own.transform.or(tables.transform),
                udp4: own.udp4.or(tables.udp4),
                udp6: own.udp6.or(tables.udp6),
                passed_on: tables.passed_on,
                table: own.table.clone(),
                ..Tables::default()
            };
            (number, Context::new(&whole, driver))
        });
        Self {
            rules: FlowRules::new(tables.rules.clone()),
            main: Context::new(tables, driver),
            contexts: contexts.collect(),
            queues: tables.queues,
            senders_queue: tables.senders_queue == Some(true),
        }
    }

    /// The queue of a flow's packets.
    pub(super) fn receive(&self, flow: &Flow) -> NicResult {
        let received = self.chosen(flow);
        match (received.queue.value, received.queue.why) {
            (Some(queue), Why::Rule { location } | Why::RuleContext { location, .. })
                if self.queues.is_some_and(|queues| queue >= queues) =>
            {
                let why = Why::RuleBeyond { location, queue };
                NicResult { queue: Step::unknown(why), seen: Step::unknown(why), gone: Some(why), ..received }
            }
            _ => received,
        }
    }

    /// The same, without validating the queue of a rule.
    fn chosen(&self, flow: &Flow) -> NicResult {
        let hash = self.main.hash.of(flow);
        let seen = self.main.hash.seen(flow, hash);
        let Some((rule, fit)) = self.rules.of(flow) else {
            return NicResult { hash, queue: self.queue(hash), seen, gone: None };
        };
        let location = rule.location;
        let unknown =
            |why| NicResult { hash, queue: Step::unknown(why), seen: Step::unknown(why), gone: None };
        let gone = |why| NicResult { gone: Some(why), ..unknown(why) };
        match rule.action {
            // A wake-up rule has no effect on a running machine.
            FlowAction::Wake => unknown(Why::RuleMaybe { location }),
            _ if fit == RuleMatch::Maybe => unknown(Why::RuleMaybe { location }),
            FlowAction::Drop => gone(Why::RuleDrops { location }),
            FlowAction::Queue { queue, vf } => match vf.checked_sub(1) {
                Some(vf) => gone(Why::RuleElsewhere { location, vf }),
                None => NicResult {
                    queue: Step::known(queue, Why::Rule { location }),
                    ..unknown(Why::RuleHash { location })
                },
            },
            FlowAction::Context { context: number, queue: added } => match self.contexts.get(&number) {
                None => unknown(Why::RuleNoContext { location, context: number }),
                Some(context) => {
                    let hash = context.hash.of(flow);
                    let queue = context.ruled(hash, location, number, added);
                    NicResult { hash, queue, seen: context.hash.seen(flow, hash), gone: None }
                }
            },
        }
    }

    /// Number of receive queues.
    pub(super) const fn queues(&self) -> Option<u32> {
        self.queues
    }

    /// The queue of the main context.
    fn queue(&self, hash: Step) -> Step {
        if self.queues == Some(1) {
            return Step::known(0, Why::OnlyQueue);
        }
        if let Some(queue) = self.main.only {
            return Step::known(queue, Why::EveryEntry);
        }
        match (&self.main.table, hash.value) {
            (None, _) if self.senders_queue => Step::unknown(Why::SendersQueue),
            (None, _) => Step::unknown(Why::NoTable),
            (Some(_), None) => Step::unknown(Why::HashUnknown),
            (Some(table), Some(hash)) => {
                let why = Why::Entry { index: table.index(hash), of: table.entries().len() };
                Step::known(table.queue(hash), why)
            }
        }
    }
}

impl Context {
    fn new(tables: &Tables, driver: Option<&'static Driver>) -> Self {
        let table = tables.table.clone();
        let only = table.as_ref().and_then(|table| {
            let first = table.entries()[0];
            table.entries().iter().all(|&queue| queue == first).then_some(first)
        });
        Self { hash: Hash::new(tables, driver), table, only }
    }

    /// The queue selected by a rule's context; `added` is what the rule adds to the entry's queue.
    fn ruled(&self, hash: Step, location: u32, context: u32, added: u32) -> Step {
        let known = |queue: u32, entry| {
            Step::known(queue.saturating_add(added), Why::RuleContext { location, context, entry })
        };
        if let Some(queue) = self.only {
            return known(queue, None);
        }
        match (&self.table, hash.value) {
            (None, _) => Step::unknown(Why::RuleNoContext { location, context }),
            (Some(_), None) => Step::unknown(Why::HashUnknown),
            (Some(table), Some(hash)) => {
                known(table.queue(hash), Some((table.index(hash), table.entries().len())))
            }
        }
    }
}

impl Hash {
    fn new(tables: &Tables, driver: Option<&'static Driver>) -> Self {
        let key = match (&tables.key, tables.function, driver) {
            (_, Some(function), _) if function != HashFunction::Toeplitz => {
                Err(Why::OtherFunction { function })
            }
            (_, _, Some(driver)) if !driver.toeplitz => Err(Why::OtherToeplitz { driver: driver.name }),
            (Some(key), ..) => Ok(Toeplitz::new(key.clone())),
            (None, _, Some(driver)) => Err(Why::RandomKey { driver: driver.name }),
            (None, ..) => Err(Why::NoKey),
        };
        let fields = |given: Option<Fields>, family: &'static str| match (given, driver) {
            (Some(fields), _) => Ok(fields),
            (None, Some(driver)) => match driver.udp_ports {
                Some(true) => Ok(Fields::AddressesPorts),
                Some(false) => Ok(Fields::Addresses),
                None => Err(Why::NoFields { family }),
            },
            (None, None) => Err(Why::NoFields { family }),
        };
        let default = driver.map(|driver| driver.transform).unwrap_or_default();
        Self {
            key,
            udp4: fields(tables.udp4, "udp4"),
            udp6: fields(tables.udp6, "udp6"),
            transform: tables.transform.unwrap_or(default),
            passed_on: tables.passed_on.or(driver.and_then(|driver| driver.l4_hash)),
        }
    }

    const fn fields(&self, flow: &Flow) -> Result<Fields, Why> {
        if flow.is_ipv4() { self.udp4 } else { self.udp6 }
    }

    fn of(&self, flow: &Flow) -> Step {
        match (&self.key, self.fields(flow)) {
            (Err(why), _) => Step::unknown(*why),
            (_, Err(why)) => Step::unknown(why),
            (Ok(toeplitz), Ok(fields)) => {
                let transform = self.transform;
                Step::known(toeplitz.hash(flow, fields, transform), Why::Toeplitz { fields, transform })
            }
        }
    }

    /// The hash that RPS and programs see (`skb_get_hash`): the card's only if it covers ports and is passed on;
    /// otherwise the kernel computes one with a secret.
    fn seen(&self, flow: &Flow, hash: Step) -> Step {
        match (hash.value, self.fields(flow), self.passed_on) {
            (_, Ok(Fields::Addresses), _) => Step::unknown(Why::HashOfAddresses),
            (_, _, Some(false)) => Step::unknown(Why::HashNotPassedOn),
            (None, ..) => Step::unknown(Why::HashUnknown),
            (Some(_), _, None) => Step { why: Why::IfPassedOn, ..hash },
            (Some(_), _, Some(true)) => hash,
        }
    }
}
