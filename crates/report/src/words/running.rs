//! Words about a running server that was boosted from outside.

use udpath_advise::result::{BoostResult, Helps, Running, Until};

use crate::units;
use udpath_host::shell::quoted;

/// The conclusion.
pub(crate) fn conclusion(result: &BoostResult, running: &Running) -> String {
    let Some(found) = result.rungs.first() else { return "Nothing was measured.".to_owned() };
    let server = format!("{} on port {}", running.server, running.port);
    let unit = super::unit(result);
    let tried = result.rungs.iter().skip(1).filter(|rung| !rung.other_load).count();
    if running.kept.is_empty() {
        let tps = units::tps(found.tps);
        let loads = if result.rungs.iter().any(|rung| rung.other_load) { " under both loads" } else { "" };
        return format!("{server}: {tps} {unit} as found; none of {tried} changes was shown to help{loads}.");
    }
    let gain = units::interval(result.gain).replacen(' ', "× ", 1);
    let names: Vec<&str> = running.kept.iter().map(|helps| helps.name.as_str()).collect();
    let with = names.join(", ");
    match super::best(result) {
        Some(best) if best.tps > 0.0 => {
            format!("{server}: {} {unit}, {gain} as found, with {with}.", units::tps(best.tps))
        }
        _ => format!("{server}: {gain} the {unit} as found, with {with}."),
    }
}

/// What a group adds to all others.
pub(crate) fn contribution(helps: &Helps) -> String {
    helps
        .contribution
        .map_or_else(String::new, |ratio| format!("{} × what remains without it", units::interval(ratio)))
}

/// The command that applies everything that helps; none if nothing does, or it is applied.
pub(crate) fn command(running: &Running) -> Option<String> {
    let settings = running.kept.iter().flat_map(|helps| &helps.settings);
    let set: Vec<String> = settings.map(|setting| format!("--set {}", quoted(setting))).collect();
    let configured =
        running.kept.iter().flat_map(|helps| &helps.settings).any(|setting| setting.starts_with("service:"));
    let consent = if configured { " --allow config --allow restart" } else { "" };
    let restart = running.restart.as_deref().filter(|_| configured);
    let restart = restart.map_or_else(String::new, |restart| format!(" --restart {}", quoted(restart)));
    (!set.is_empty() && running.applies.is_empty())
        .then(|| format!("udpath apply {}{consent}{restart}", set.join(" ")))
}

/// How the machine was left, a sentence each.
pub(crate) fn left(running: &Running) -> Vec<String> {
    if running.applies.is_empty() {
        return vec!["every setting is as found; with --keep, what helps is applied".to_owned()];
    }
    // The last first.
    let undo: Vec<String> = running.applies.iter().rev().map(|id| format!("`udpath undo {id}`")).collect();
    let stays = if running.fleeting.is_empty() { ", and kept over restarts and boots" } else { "" };
    let applied = format!("applied{stays}; {} takes it back", undo.join(", then "));
    let ends = running.fleeting.iter().map(|ends| {
        let until = match ends.until {
            Until::ServerRestart => format!("{} is restarted", running.server),
            Until::Boot => "the next boot".to_owned(),
        };
        format!("only until {until}: {} ({})", ends.settings.join(" "), ends.why)
    });
    [applied].into_iter().chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use udpath_advise::result::Fleeting;

    use super::*;

    #[test]
    fn a_configuration_is_applied_with_consent() {
        let helps = |settings: &[&str]| Helps {
            name: "a".into(),
            what: "b".into(),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            shell: Vec::new(),
            contribution: None,
        };
        let mut running = Running {
            server: "nsd".into(),
            pids: vec![1],
            port: 53,
            interface: "eth0".into(),
            findings: Vec::new(),
            kept: vec![helps(&["eth0:napi/threaded=on"])],
            restart: Some("systemctl restart nsd".into()),
            applies: Vec::new(),
            fleeting: Vec::new(),
            screened: 0,
            out_of_time: false,
            refused_trials: 0,
        };
        assert_eq!(command(&running).unwrap(), "udpath apply --set eth0:napi/threaded=on");
        running.kept.push(helps(&["service:53:server-count=2"]));
        assert_eq!(
            command(&running).unwrap(),
            "udpath apply --set eth0:napi/threaded=on --set service:53:server-count=2 --allow config --allow restart \
             --restart 'systemctl restart nsd'"
        );
        running.applies.extend([1, 2]);
        assert_eq!(command(&running), None);
        let applied =
            "applied, and kept over restarts and boots; `udpath undo 2`, then `udpath undo 1` takes it back";
        assert_eq!(left(&running), [applied]);
        let settings = ["port:53:busy-poll=50", "port:53:threads=one-per-cpu"].map(str::to_owned).to_vec();
        running.fleeting.push(Fleeting {
            settings,
            until: Until::ServerRestart,
            why: "new sockets".to_owned(),
        });
        let [applied, ends] = &left(&running)[..] else { panic!("{:?}", left(&running)) };
        assert!(applied.starts_with("applied; "), "{applied}");
        assert_eq!(
            ends,
            "only until nsd is restarted: port:53:busy-poll=50 port:53:threads=one-per-cpu (new sockets)"
        );
    }
}
