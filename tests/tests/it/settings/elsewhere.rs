//! Settings in network namespaces other than the host's: writes go to the caller's namespace, and files in /etc,
//! which describe the host's interfaces, are not written at all.

use std::process::{Command, Stdio};

use serde_json::Value;
use udpath_rig::{Said, program};

use super::place::{Place, RPS};

/// A shell with a private copy of /etc; `names` lists it.
const OWN_ETC: &str = "cp -a /etc $S.etc; trap 'rm -rf $S.*' EXIT; mount --bind $S.etc /etc; \
                       names() { (cd /etc; find . | sort); }; names > $S.before";

#[test]
fn settings_of_another_namespace_are_not_kept_over_a_boot() {
    udpath_lab::needs_root!();
    let place = Place::new("kept-elsewhere");
    let before = place.rps();
    for request in [RPS, "sysctl:net.ipv4.ip_default_ttl=70", "eth0:channels/rx=2"] {
        // By `ip netns exec` or similar, like this shell; and by --netns, from outside.
        let lines = |options: &str| {
            let apply = format!("$U apply --state $S --persist --set {request} {options}");
            format!("{OWN_ETC}; code=0; {apply} || code=$?; names | diff $S.before -; exit $code")
        };
        let inside = place.shell(&lines(""));
        let mut outside = Command::new("unshare");
        let name = place.lab.machine("here").unwrap().namespace();
        outside.args(["-m", "sh", "-e", "-c", &lines(&format!("--netns {name}"))]).stdin(Stdio::null());
        let outside = outside.env("U", program()).env("S", place.state.path()).output().unwrap();
        for said in [inside, Said::from(outside)] {
            said.refused(3, "files in /etc apply to the initial one");
            assert_eq!(said.out, "", "files were written");
        }
    }
    assert_eq!(place.rps(), before);
    assert_eq!(place.run(&["status"]).fine().out, "");
    assert!(!place.state.path().join("000001.journal").exists());
}

/// /sys of one machine, network namespace of the other, as after `nsenter --net`: both have an eth0 with the same
/// index.
#[test]
fn after_nsenter_the_namespace_counts_and_not_the_mounted_sys() {
    udpath_lab::needs_root!();
    let place = Place::new("nsenter");
    let there = place.lab.machine("there").unwrap().namespace().to_owned();
    let enter = format!("nsenter --net=/run/netns/{there}");
    let rps = "cat /sys/class/net/eth0/queues/rx-0/rps_cpus";
    let of_there = || place.shell(&format!("ip netns exec {there} {rps}")).fine().out.trim().to_owned();
    let (here_before, there_before) = (place.rps(), of_there());

    let plan = place
        .shell(&format!("echo 2 > /sys/class/net/eth0/queues/rx-0/rps_cpus; {enter} $U plan --set {RPS}"));
    assert!(plan.fine().out.starts_with("eth0:rps/rx-0  none -> 0-1"), "{}", plan.out);
    place.shell(&format!("echo {here_before} > /sys/class/net/eth0/queues/rx-0/rps_cpus")).fine();

    // Netlink and sysfs in one plan.
    place.shell(&format!("{enter} $U apply --state $S --set {RPS} --set eth0:qdisc=mq")).fine();
    assert_eq!((place.rps(), of_there().ends_with('3')), (here_before.clone(), true));
    place.shell(&format!("{enter} $U status --state $S")).fine();
    place.shell(&format!("ip netns exec {there} $U status --state $S")).fine();
    let shown = place.shell(&format!("{enter} $U show --snapshot")).fine().out.clone();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let eth0 = shown["interfaces"].as_array().unwrap().iter().find(|one| one["name"] == "eth0").unwrap();
    assert_eq!(eth0["rx"][0]["rps_cpus"], "0-1", "{}", eth0["rx"][0]);
    place.shell(&format!("{enter} $U undo --state $S")).fine();
    assert_eq!((place.rps(), of_there()), (here_before.clone(), there_before.clone()));

    // The revert acts on the same namespace.
    place.shell(&format!("{enter} $U apply --state $S --set {RPS} --confirm 1s")).fine();
    udpath_rig::awaited("the apply to be reverted there", udpath_rig::TIMEOUT, || {
        (of_there() == there_before).then_some(())
    });
    assert_eq!(place.rps(), here_before);
}

/// Without the right to mount, a matching /sys is unavailable, and a wrong one is not read.
#[test]
fn without_mount_rights_a_foreign_sys_is_refused() {
    udpath_lab::needs_root!();
    let place = Place::new("foreign-sys");
    let there = place.lab.machine("there").unwrap().namespace().to_owned();
    let open = "cp $U $S.open; chmod 755 $S.open; trap 'rm -rf $S.open' EXIT";
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
    for verb in ["show", "status", "plan --set eth0:rps/rx-0=0-1", "export --once", "top --once"] {
        let foreign =
            place.shell(&format!("{open}; nsenter --net=/run/netns/{there} {nobody} $S.open {verb}"));
        foreign.refused(3, "/sys shows the devices of another network namespace");
        let own = place.shell(&format!("{open}; {nobody} $S.open {verb}"));
        assert!(!own.err.contains("another network namespace"), "{verb}: {}", own.err);
    }
}
