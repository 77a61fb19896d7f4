//! Chains whose rules have been evaluated for one datagram, and the walk through them.

use std::collections::BTreeMap;

/// Deepest jump that is followed: the kernel allows 16 (`NFT_JUMP_STACK_SIZE`); ip_tables allows one per chain.
const DEEPEST: usize = 32;
/// Most findings of one base chain. More than anyone reads; nested jumps could otherwise multiply without limit.
const MOST: usize = 1000;

/// Whether the datagram matches a rule's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Applies {
    No,
    /// It depends on unknown properties of the datagram, or is undecidable.
    Maybe,
    Yes,
}

/// Effect of a rule on a packet that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// At most counts.
    Nothing,
    /// Has an effect and continues: logs, marks, sets.
    Effect,
    Accept,
    Return,
    Jump(String),
    Goto(String),
    /// Ends the packet's processing here: drops, rejects, queues, changes its addresses.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) applies: Applies,
    pub(super) action: Action,
    pub(super) text: String,
    pub(super) handle: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) rules: Vec<Rule>,
}

/// A rule or policy that would have applied, or might have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) filter: &'static str,
    pub(super) chain: String,
    pub(super) rule: String,
    pub(super) handle: Option<u64>,
    pub(super) certain: bool,
}

/// The chains of one table.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) filter: &'static str,
    /// Prefix of a chain's name: `inet filter`.
    pub(super) name: String,
    pub(super) chains: BTreeMap<&'a str, Chain>,
}

/// How packets leave a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// At its end, or by a return: all or some of them.
    Through { all: bool },
    /// They do not leave it: a verdict applies to each.
    Decided,
}

struct Walk<'a> {
    table: &'a Table<'a>,
    found: Vec<Finding>,
    /// Whether any finding is not an accept.
    matters: bool,
}

impl Table<'_> {
    /// What would have applied from this chain on. Empty if all it does is accept the packet.
    pub(super) fn walked(&self, base: &str, drops_by_policy: bool) -> Vec<Finding> {
        let mut walk = Walk { table: self, found: Vec::new(), matters: false };
        if let Left::Through { all: certain } = walk.chain(base, true, 0)
            && drops_by_policy
        {
            walk.matters = true;
            walk.add(base, "policy drop".into(), None, certain);
        }
        if walk.matters { walk.found } else { Vec::new() }
    }
}

impl Walk<'_> {
    fn add(&mut self, chain: &str, rule: String, handle: Option<u64>, certain: bool) {
        if self.found.len() < MOST {
            let chain = format!("{} {chain}", self.table.name);
            self.found.push(Finding { filter: self.table.filter, chain, rule, handle, certain });
        }
    }

    /// `certain`: every packet reaches this chain.
    fn chain(&mut self, name: &str, certain: bool, depth: usize) -> Left {
        let Some(chain) = self.table.chains.get(name) else { return Left::Through { all: true } };
        // Of the packets that entered the chain: whether all reach the current rule, whether some returned before it,
        // whether some already have a verdict.
        let (mut here, mut returned, mut lost) = (true, false, false);
        for rule in chain.rules.iter().filter(|rule| rule.applies > Applies::No) {
            let each = rule.applies == Applies::Yes;
            let left = match &rule.action {
                Action::Nothing => continue,
                Action::Effect => {
                    self.matters = true;
                    self.add(name, rule.text.clone(), rule.handle, certain && here && each);
                    continue;
                }
                Action::Accept | Action::End => {
                    self.matters |= rule.action == Action::End;
                    self.add(name, rule.text.clone(), rule.handle, certain && here && each);
                    Left::Decided
                }
                Action::Return => Left::Through { all: true },
                Action::Jump(to) | Action::Goto(to) => {
                    if depth < DEEPEST && self.found.len() < MOST {
                        self.chain(to, certain && here && each, depth + 1)
                    } else {
                        Left::Through { all: false }
                    }
                }
            };
            let goes_on = matches!(rule.action, Action::Jump(_));
            match left {
                Left::Decided if each && !returned => return Left::Decided,
                Left::Decided if each => return Left::Through { all: false },
                Left::Decided => (here, lost) = (false, true),
                Left::Through { all } => {
                    lost |= !all;
                    if !goes_on && each {
                        return Left::Through { all: !lost };
                    }
                    returned |= !goes_on;
                    here &= goes_on && all;
                }
            }
        }
        Left::Through { all: !lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(applies: Applies, action: Action, text: &str) -> Rule {
        Rule { applies, action, text: text.into(), handle: None }
    }

    /// The findings, with a question mark after those that may apply.
    fn walked(chains: &[(&'static str, Vec<Rule>)], drops: bool) -> Vec<String> {
        let chains = chains.iter().map(|(name, rules)| (*name, Chain { rules: rules.clone() })).collect();
        let table = Table { filter: "nftables", name: "t".into(), chains };
        let told = |found: Finding| format!("{}{}", found.rule, if found.certain { "" } else { "?" });
        table.walked("input", drops).into_iter().map(told).collect()
    }

    #[test]
    fn rules_that_only_accept_are_not_reported() {
        use Action::*;
        use Applies::*;
        let accepts =
            vec![rule(Maybe, Accept, "established"), rule(Yes, Accept, "port"), rule(Yes, End, "drop")];
        assert!(walked(&[("input", accepts.clone())], true).is_empty());
        assert!(walked(&[("input", Vec::new())], false).is_empty());
        assert_eq!(walked(&[("input", Vec::new())], true), ["policy drop"]);
        assert_eq!(walked(&[("input", accepts[..1].to_vec())], true), ["established?", "policy drop?"]);
        let other = vec![rule(No, Accept, "another port"), rule(Yes, Nothing, "counter")];
        assert_eq!(walked(&[("input", other)], true), ["policy drop"]);
    }

    #[test]
    fn findings_after_a_possible_verdict_are_uncertain() {
        use Action::*;
        use Applies::*;
        let rules = vec![rule(Maybe, End, "one source"), rule(Yes, End, "all"), rule(Yes, End, "never")];
        assert_eq!(walked(&[("input", rules)], true), ["one source?", "all?"]);
        let rules = vec![rule(Yes, Effect, "log"), rule(Yes, End, "all")];
        assert_eq!(walked(&[("input", rules)], false), ["log", "all"]);
    }

    #[test]
    fn jumps_come_back_and_gotos_do_not() {
        use Action::*;
        use Applies::*;
        let sub = vec![rule(No, End, "other"), rule(Yes, Return, ""), rule(Yes, End, "behind")];
        let jump = vec![rule(Yes, Jump("sub".into()), ""), rule(Yes, End, "after")];
        assert_eq!(walked(&[("input", jump), ("sub", sub.clone())], true), ["after"]);
        let goto = vec![rule(Yes, Goto("sub".into()), ""), rule(Yes, End, "after")];
        assert_eq!(walked(&[("input", goto), ("sub", sub.clone())], true), ["policy drop"]);
        let maybe = vec![rule(Maybe, Jump("sub".into()), ""), rule(Yes, End, "after")];
        assert_eq!(walked(&[("input", maybe.clone()), ("sub", sub)], true), ["after"]);
        let drops = vec![rule(Yes, End, "drops")];
        assert_eq!(walked(&[("input", maybe), ("sub", drops.clone())], true), ["drops?", "after?"]);
        let decided = vec![rule(Yes, Jump("sub".into()), ""), rule(Yes, End, "after")];
        assert_eq!(walked(&[("input", decided), ("sub", drops)], true), ["drops"]);
        // Some return before the rest is dropped.
        let rules = vec![rule(Maybe, Return, ""), rule(Yes, End, "the rest")];
        assert_eq!(walked(&[("input", rules)], true), ["the rest?", "policy drop?"]);
        // Loops end, even those that the kernel would reject.
        let round = rule(Maybe, Jump("input".into()), "");
        assert_eq!(walked(&[("input", vec![round])], true), ["policy drop?"]);
    }
}
