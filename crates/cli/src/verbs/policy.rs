//! `udpath policy`: the settings `policy:` by another name, and what they do.

use anyhow::anyhow;
use udpath_host::source::Folder;
use udpath_report::{policy_text, to_pretty_json};
use udpath_tune::policy::{self, EffectState, PolicyReport};
use udpath_tune::undo::undo_what_can_be;
use udpath_tune::{Journal, Live, Machine};

use super::{apply, undo};
use crate::args::place::NetnsArgs;
use crate::args::policy::{Action, Args, RemoveArgs, SetArgs, ShowArgs, SpreadArgs};
use crate::args::settings::{ChangeArgs, CommonArgs, JournalArgs};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal;

/// Shows, sets or removes.
pub(crate) fn run(args: Args) -> Done {
    match args.action {
        Action::List(args) => show(None, args.json),
        Action::Show(ShowArgs { target, json }) => show(Some(&target.target), json),
        Action::Set(args) => set(args),
        Action::Spread(args) => spread(&args),
        Action::Remove(args) => remove(&args),
    }
}

fn show(target: Option<&str>, json: bool) -> Done {
    let source = Folder::live();
    let target = target.map(|text| policy::target(&source, text)).transpose().map_err(cannot)?;
    let report = PolicyReport::of(&Live::new(), target.as_ref()).map_err(cannot)?;
    if json {
        terminal::print(&to_pretty_json(&report))?;
    } else if report.options.is_empty() {
        let of = target.map_or_else(String::new, |target| format!(" of {}", target.cgroup));
        stderrln!("no policy{of}");
    }
    let text = policy_text(&report);
    if !json && !text.is_empty() {
        terminal::print(&text)?;
    }
    match report.options.iter().filter(|option| option.state == EffectState::Broken).count() {
        0 => Ok(()),
        1 => Err(Failure::Findings("1 option does not have its effect".to_owned())),
        count => Err(Failure::Findings(format!("{count} options do not have their effect"))),
    }
}

fn set(args: SetArgs) -> Done {
    let SetArgs { target, options, persist, reason, journal, json } = args;
    let set = options.iter().map(|option| format!("policy:{}/{option}", target.target));
    let set: Vec<String> = set.collect();
    // Each option was named: that is the consent.
    let allow = set.iter().filter_map(|set| set.rsplit_once('=')).map(|(name, _)| name.to_owned()).collect();
    apply::run(&of_requests(set, allow, reason, persist, journal, json))
}

fn spread(args: &SpreadArgs) -> Done {
    let machine = Live::new();
    let target = policy::target(machine.source(), &args.target.target).map_err(cannot)?;
    for group in policy::spread(&machine, &target, args.rule, args.wait).map_err(cannot)? {
        stderrln!("{}: {} sockets, {}", group.address, group.cookies.len(), args.rule);
    }
    if let Some(what) = args.rule.reorders() {
        stderrln!("note: {what}");
    }
    Ok(())
}

/// An apply of these settings.
fn of_requests(
    set: Vec<String>,
    allow: Vec<String>,
    reason: String,
    persist: bool,
    journal: JournalArgs,
    json: bool,
) -> crate::args::apply::Args {
    crate::args::apply::Args {
        changes: ChangeArgs {
            file: None,
            set,
            service: Vec::new(),
            restart: None,
            reason,
            allow,
            ignore_conflicts: Vec::new(),
        },
        confirm: None,
        persist,
        adopt: None,
        common: CommonArgs { journal, netns: NetnsArgs { netns: None } },
        json,
    }
}

/// Undoes what has set it, so that limits and files go with it; what something else has set as well is set to none.
fn remove(args: &RemoveArgs) -> Done {
    let source = Folder::live();
    let target = policy::target(&source, &args.target.target).map_err(cannot)?;
    let journal = Journal::at(&args.journal.state);
    let (mut undone, mut ended) = (0, Ok(()));
    {
        let lock = journal.lock()?;
        signals::watch(Left::Settings(&args.journal.state))?;
        for id in policy::applies_of(&target, &journal.entries()?) {
            let back = undo_what_can_be(&Live::new(), &lock, id, "policy remove")?;
            undone += 1;
            ended = ended.and(undo::ended(&back));
        }
    }
    ended?;
    let left = PolicyReport::of(&Live::new(), Some(&target)).map_err(cannot)?.options;
    match (left.is_empty(), undone) {
        (true, 0) => Err(cannot(format!("{} has no policy", target.cgroup))),
        (true, _) => Ok(()),
        (false, _) => {
            let set = left.iter().map(|option| format!("{}=none", option.setting)).collect();
            apply::run(&of_requests(
                set,
                Vec::new(),
                "policy remove".to_owned(),
                false,
                args.journal.clone(),
                false,
            ))
        }
    }
}

fn cannot(why: String) -> Failure {
    Failure::Cannot(anyhow!(why))
}
