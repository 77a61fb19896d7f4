//! Which servers there are, and how each is configured.

use std::fs;
use std::path::Path;

use super::Shape;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Nsd,
    Knot,
    Unbound,
    Bind,
    Chrony,
    Freeradius,
    Rsyslog,
    Coturn,
}

impl Kind {
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::Nsd => "nsd",
            Self::Knot => "knot",
            Self::Unbound => "unbound",
            Self::Bind => "bind9",
            Self::Chrony => "chrony",
            Self::Freeradius => "freeradius",
            Self::Rsyslog => "rsyslog",
            Self::Coturn => "coturn",
        }
    }

    pub(super) fn port(self) -> u16 {
        match self {
            Self::Chrony => 123,
            Self::Freeradius => 1812,
            Self::Rsyslog => 5140,
            Self::Coturn => 3478,
            _ => 5300,
        }
    }

    /// Some knobs, their values as configured, and whether a file sets them.
    pub(in super::super) fn knobs(self) -> &'static [(&'static str, Option<&'static str>, bool)] {
        match self {
            Self::Nsd => &[("server-count", None, false), ("reuseport", None, false)],
            Self::Knot => &[("udp-workers", Some("2"), true), ("socket-affinity", None, false)],
            Self::Unbound => &[("num-threads", None, false), ("so-rcvbuf", Some("65536"), true)],
            Self::Bind => &[("workers", Some("2"), false), ("udp-receive-buffer", None, false)],
            Self::Chrony => &[("noclientlog", None, false), ("ratelimit", None, false)],
            Self::Freeradius => &[("recv_buff", None, false), ("max_servers", Some("2"), true)],
            Self::Rsyslog => &[("threads", None, false), ("TimeRequery", Some("8"), true)],
            Self::Coturn => &[("relay-threads", Some("2"), true)],
        }
    }

    /// The shape after the change that the tests make.
    pub(in super::super) fn tuned(self, plain: &Shape) -> Shape {
        let now = plain.clone();
        match self {
            Self::Nsd => Shape { workers: now.workers + 1, sockets: 2, buffer: 2 * 262_144, ..now },
            Self::Knot => Shape { workers: now.workers + 1, sockets: 3, ..now },
            Self::Unbound => Shape { workers: 2, sockets: 2, buffer: 2 * 262_144, ..now },
            Self::Bind => Shape { sockets: 1, buffer: 2 * 131_072, ..now },
            Self::Freeradius => Shape { buffer: 2 * 131_072, ..now },
            Self::Chrony => Shape { interleaved: false, ..now },
            Self::Rsyslog => Shape { workers: 2, buffer: 2 * 131_072, ..now },
            Self::Coturn => Shape { workers: now.workers + 1, sockets: now.sockets + 1, ..now },
        }
    }

    /// How many of the changes show in the running server.
    pub(in super::super) const fn shown(self) -> usize {
        match self {
            Self::Nsd => 4,
            Self::Unbound | Self::Bind => 3,
            Self::Rsyslog => 2,
            Self::Knot | Self::Freeradius | Self::Coturn => 1,
            Self::Chrony => 0,
        }
    }

    /// Writes what differs from the package's files, and returns the command.
    pub(super) fn prepare(self, root: &Path) -> String {
        let here = root.display();
        let put = |path: &str, text: String| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let change = |path: &str, changes: &[(&str, &str)]| {
            let mut text = fs::read_to_string(root.join(path)).unwrap();
            for (from, to) in changes {
                assert!(text.contains(from), "{path} has no {from:?}: {text}");
                text = text.replace(from, to);
            }
            fs::write(root.join(path), text).unwrap();
        };
        match self {
            Self::Nsd => {
                let own = format!(
                    "server:\n  ip-address: 127.0.0.1@5300\n  username: \"\"\n  database: \"\"\n  zonesdir: {here}\n  \
                     pidfile: \"\"\n  xfrdfile: {here}/xfrd\n  xfrdir: {here}\n  zonelistfile: {here}/list\n\
                     remote-control:\n  control-enable: no\n"
                );
                put("etc/nsd/nsd.conf.d/own.conf", own);
                format!("nsd -d -c {here}/etc/nsd/nsd.conf")
            }
            Self::Knot => {
                let own =
                    format!("rundir: \"{here}\"\n    listen: 127.0.0.1@5300\n    udp-workers: 2 # two\n");
                change(
                    "etc/knot/knot.conf",
                    &[
                        ("rundir: \"/run/knot\"\n", &own),
                        ("    user: knot:knot\n", ""),
                        ("/var/lib/knot", &here.to_string()),
                    ],
                );
                format!("knotd -c {here}/etc/knot/knot.conf")
            }
            Self::Unbound => {
                // Its key is made at the first start of the unit.
                fs::remove_file(root.join("etc/unbound/unbound.conf.d/root-auto-trust-anchor-file.conf"))
                    .unwrap();
                let own = format!(
                    "server:\n  interface: 127.0.0.1\n  port: 5300\n  username: \"\"\n  chroot: \"\"\n  directory: {here}\n  \
                     pidfile: \"\"\n  use-syslog: no\n  so-rcvbuf: 65536\nremote-control:\n  control-enable: no\n"
                );
                put("etc/unbound/unbound.conf.d/zz-own.conf", own);
                format!("unbound -d -p -c {here}/etc/unbound/unbound.conf")
            }
            Self::Bind => {
                let own = "listen-on port 5300 { 127.0.0.1; };\n\tlisten-on-v6 { none; };\n\tpid-file none;\n\t\
                           session-keyfile none;\n";
                change(
                    "etc/bind/named.conf.options",
                    &[
                        ("listen-on-v6 { any; };\n", own),
                        ("/var/cache/bind", &here.to_string()),
                        ("dnssec-validation auto", "dnssec-validation no"),
                    ],
                );
                put("etc/bind/named.conf.local", "controls { };\n".to_owned());
                format!("named -g -n 2 -c {here}/etc/bind/named.conf")
            }
            Self::Chrony => {
                let own = format!(
                    "allow\nlocal stratum 5\ncmdport 0\nbindcmdaddress /\npidfile {here}/chrony.pid\ndriftfile {here}/drift\n"
                );
                put("etc/chrony/conf.d/own.conf", own);
                change("etc/chrony/chrony.conf", &[("pool 2.debian.pool.ntp.org iburst\n", "")]);
                format!("/var/cache/udpath/chronyd -d -x -u root -f {here}/etc/chrony/chrony.conf")
            }
            Self::Freeradius => {
                let unpacked = "/var/cache/udpath/freeradius";
                let text = include_str!("../../../../../../tests/rig/src/freeradius/radiusd.conf");
                let text = text.replace("LIBRARIES", &format!("{unpacked}/usr/lib/freeradius"));
                let text = text.replace("SECRET", "s3cret").replace("USERS", &format!("{here}/users"));
                put("users", "a Cleartext-Password := \"b\"\n".to_owned());
                // Only this file: the package's own needs modules and certificates that it makes when it is installed.
                fs::remove_dir_all(root.join("etc/freeradius/3.0")).unwrap();
                put("etc/freeradius/3.0/radiusd.conf", text.replace("FOLDER", &here.to_string()));
                format!("{unpacked}/usr/sbin/freeradius -f -l stdout -d {here}/etc/freeradius/3.0")
            }
            Self::Rsyslog => {
                let input = "module(load=\"imudp\" TimeRequery=\"8\")\n\
                             input(type=\"imudp\" address=\"127.0.0.1\" port=\"5140\")";
                change(
                    "etc/rsyslog.conf",
                    &[
                        ("#module(load=\"imudp\")\n#input(type=\"imudp\" port=\"514\")", input),
                        ("module(load=\"imuxsock\")", "#"),
                        ("module(load=\"imklog\")", "#"),
                        ("/var/log/", &format!("{here}/")),
                        ("/var/spool/rsyslog", &here.to_string()),
                    ],
                );
                format!("rsyslogd -n -iNONE -f {here}/etc/rsyslog.conf")
            }
            Self::Coturn => {
                let own = format!(
                    "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nrelay-threads=2\nno-tls\nno-dtls\nno-cli\nuserdb={here}/turndb\n\
                     pidfile={here}/turn.pid\nlog-file=stdout\n"
                );
                let path = root.join("etc/turnserver.conf");
                let text = fs::read_to_string(&path).unwrap();
                fs::write(path, text + &own).unwrap();
                format!("turnserver -c {here}/etc/turnserver.conf")
            }
        }
    }
}
