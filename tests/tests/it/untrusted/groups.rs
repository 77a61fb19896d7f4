//! Servers in control groups: of a unit, and of somebody who names groups as they like: user nobody, to whom the test's
//! group is delegated (as systemd delegates user@UID.service), makes the groups, and is the server's user.
//!
//! In a cgroup namespace, a group of the test is the root; systemctl is a script that records how it was called.

use std::fs;
use std::path::Path;

use udpath_lab::needs_root;
use udpath_rig::{Cgroup, Ended, Run, TIMEOUT, program};

use super::script;

/// Arguments: the test's group, the server's group below it, the results' folder, udpath. `/run` is empty in its mount
/// namespace.
const NAMESPACES: &str = r#"
chown 65534:65534 "$1" "$1/cgroup.procs"
setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- mkdir -p "$1/$2"
echo $$ > "$1/cgroup.procs"
exec unshare --net --mount --cgroup --propagation private -- sh -e -c "$INSIDE" sh "$@"
"#;
/// A coturn that answers STUN, a systemctl that restarts it, and the runs of udpath.
const INSIDE: &str = r#"
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /run/bin
cp -a /etc /run/etc
mount --bind /run/etc /etc
cp /usr/bin/perl /run/turnserver
echo 'listening-port=5399' > /etc/turnserver.conf
chmod 644 /etc/turnserver.conf
cat > /run/turn.pl << 'END'
use Socket; socket(S, PF_INET, SOCK_DGRAM, 0); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1);
bind(S, pack_sockaddr_in(5399, inet_aton('127.0.0.1'))) or die $!;
while (1) { my $from = recv(S, my $request, 1500, 0) or next; send(S, pack('C', 1) . substr($request, 1), 0, $from) }
END
cat > /run/start << END
old=\$(cat /run/pid 2> /dev/null) && kill \$old
tries=0; while [ -n "\$old" ] && [ -e /proc/\$old/exe ] && [ \$tries -lt 200 ]; do sleep 0.02; tries=\$((tries + 1)); done
setsid setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- sh -c 'echo \$\$ > "\$0/cgroup.procs"; exec /run/turnserver /run/turn.pl -c /etc/turnserver.conf' \
    '$1/$2' < /dev/null > /dev/null 2>&1 &
echo \$! > /run/pid
END
cat > /run/bin/systemctl << END
#!/bin/sh
echo "\$@" >> /run/systemctl
case \$1 in
    show) printf 'LoadState=$STATE\nControlGroup=/system.slice/turn.service\nMainPID=%s\n' $MAIN ;;
    *) . /run/start ;;
esac
END
chmod +x /run/bin/systemctl
export PATH=/run/bin:$PATH
: > /run/systemctl
. /run/start
tries=0; until grep -q ':1517 ' /proc/net/udp || [ $tries -gt 200 ]; do sleep 0.02; tries=$((tries + 1)); done
cd "$3"
run() { name=$1; shift; code=0; "$@" > "$name.out" 2> "$name.err" < /dev/null || code=$?; echo $code > "$name.code"; }
run plan "$4" plan --set service:5399:relay-threads=2
run apply "$4" apply --set service:5399:relay-threads=2 --allow config --allow restart --state /run/state
cp /etc/turnserver.conf applied
run undo "$4" undo --state /run/state
cp /etc/turnserver.conf undone
[ "$STATE" = loaded ] || run boost "$4" boost --unit turn.service --load dns 127.0.0.1:5399
cp /run/systemctl systemctl
kill $(cat /run/pid)
"#;

/// What happened.
struct Happened {
    folder: tempfile::TempDir,
}

impl Happened {
    /// To a server in this group; `main`: the main process of turn.service, as systemd says it.
    fn to(group: &str, state: &str, main: &str) -> Self {
        let (cgroup, folder) = (Cgroup::new(), tempfile::tempdir().unwrap());
        let arguments =
            [cgroup.path("").as_path(), Path::new(group), folder.path(), &program()].map(Path::to_owned);
        let arguments: Vec<&Path> = arguments.iter().map(AsRef::as_ref).collect();
        let mut command = script(NAMESPACES, &arguments);
        command.env("INSIDE", INSIDE).env("STATE", state).env("MAIN", main);
        let ended: Ended = Run::of(command, group).within(TIMEOUT * 3).start().finish();
        assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.err);
        Self { folder }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Exit code of a run, and what it printed.
    fn run(&self, name: &str) -> (String, String) {
        let file = |end: &str| self.text(&format!("{name}.{end}"));
        (file("code").trim().to_owned(), file("out") + &file("err"))
    }
}

#[test]
fn a_unit_that_systemd_confirms_is_restarted_without_a_shell() {
    needs_root!();
    let happened = Happened::to("system.slice/turn.service", "loaded", "$(cat /run/pid)");
    let (code, plan) = happened.run("plan");
    assert!(
        code == "0" && plan.contains("restart:coturn@127.0.0.1:5399 systemctl restart turn.service"),
        "{plan}"
    );
    let (code, apply) = happened.run("apply");
    assert!(code == "0" && apply.contains("applied and verified"), "{apply}");
    assert!(happened.text("applied").contains("relay-threads=2"));
    let (code, undo) = happened.run("undo");
    assert!(code == "0" && !happened.text("undone").contains("relay-threads"), "{undo}");
    let calls = happened.text("systemctl");
    let restarts: Vec<&str> = calls.lines().filter(|call| call.contains("restart")).collect();
    assert_eq!(restarts, ["--no-ask-password restart -- turn.service"; 2]);
}

#[test]
fn a_group_that_somebody_named_restarts_nothing() {
    needs_root!();
    for group in [
        "x;touch PWNED;.service",
        "x;touch PWNED;.service/turn.service",
        "user.slice/user-1000.slice/user@1000.service/turn.service",
        "mine/turn.service",
        "*.service",
        "--force.service",
    ] {
        let happened = Happened::to(group, "not-found", "0");
        let (_, plan) = happened.run("plan");
        assert!(plan.contains("coturn") && !plan.contains("systemctl restart"), "{group}: {plan}");
        let (code, apply) = happened.run("apply");
        assert!(code == "3" && apply.contains("--restart COMMAND"), "{group}: {apply}");
        let (code, boost) = happened.run("boost");
        assert!(code == "3" && boost.contains("systemd has no unit turn.service"), "{group}: {boost}");
        assert!(!happened.folder.path().join("PWNED").exists(), "{group}");
        assert!(!happened.text("systemctl").contains("restart"), "{group}");
        assert_eq!(happened.text("applied"), "listening-port=5399\n");
    }
}

#[test]
fn a_process_of_a_unit_that_is_not_its_program_is_not_the_unit() {
    needs_root!();
    // As cron runs the programs of users. systemctl's own parent is the main process here.
    let happened = Happened::to("system.slice/turn.service", "loaded", "$PPID");
    let (code, apply) = happened.run("apply");
    assert!(
        code == "3" && apply.contains("systemd does not run it as the program of turn.service"),
        "{apply}"
    );
    assert!(!happened.text("systemctl").contains("restart"), "{}", happened.text("systemctl"));
}
