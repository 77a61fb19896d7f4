//! The part of a profile that is charged to the service: a compiler beside it must not make what its datagrams cost
//! look small.

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::Share;

/// The profile without what other programs did: shares are then of the service's own time. Without a focus, all of it.
pub(super) fn own(profile: &Profile) -> Profile {
    let mut own = profile.clone();
    if profile.facts.focus.pids.is_empty() {
        return own;
    }
    own.stacks.retain(|stack| profile.charges(stack));
    // What the stacks lack, such as idle time, stays as it is.
    let mut others: BTreeMap<Context, u64> = BTreeMap::new();
    for stack in profile.stacks.iter().filter(|stack| !profile.charges(stack)) {
        *others.entry(stack.context).or_default() += stack.ns;
    }
    for (context, ns) in &mut own.contexts {
        *ns = ns.saturating_sub(others.get(context).copied().unwrap_or(0));
    }
    let busy = own.busy().max(1) as f64;
    charge(&mut own.classes, busy);
    charge(&mut own.locks, busy);
    own.processes.retain(|process| profile.facts.focus.pids.contains(&process.pid));
    for process in &mut own.processes {
        process.share = process.ns as f64 / busy;
    }
    own
}

fn charge<T>(shares: &mut Vec<Share<T>>, busy: f64) {
    for share in shares.iter_mut() {
        (share.ns, share.others) = (share.charged(), 0);
        share.share = share.ns as f64 / busy;
    }
    shares.retain(|share| share.ns > 0);
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
}
