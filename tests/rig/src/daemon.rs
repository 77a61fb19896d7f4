//! Debian's UDP servers in their default configuration, but for what a test needs: an address, a zone or a user, and no
//! file outside a folder.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::freeradius;

/// FreeRADIUS's secret.
const SECRET: &str = "s3cret";

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonProgram {
    /// NLnet Labs' NSD.
    Nsd,
    /// Knot DNS.
    Knotd,
    /// NLnet Labs' resolver.
    Unbound,
    /// BIND 9.
    Named,
    /// FreeRADIUS.
    Freeradius,
    /// chrony, as a server of its own clock.
    Chronyd,
    /// rsyslog, which receives over UDP.
    Rsyslogd,
    /// coturn, on the loopback.
    Turnserver,
}

impl DaemonProgram {
    /// The program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nsd => "nsd",
            Self::Knotd => "knotd",
            Self::Unbound => "unbound",
            Self::Named => "named",
            Self::Freeradius => "freeradius",
            Self::Chronyd => "chronyd",
            Self::Rsyslogd => "rsyslogd",
            Self::Turnserver => "turnserver",
        }
    }

    /// Its UDP port; not 53, so that the packages' own services do not matter.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Freeradius => 1812,
            Self::Chronyd => 123,
            Self::Rsyslogd => 5140,
            Self::Turnserver => 3478,
            Self::Nsd | Self::Knotd | Self::Unbound | Self::Named => 5300,
        }
    }

    /// Its configuration's file, in the folder of [`DaemonProgram::prepare`].
    #[must_use]
    pub const fn conf(self) -> &'static str {
        match self {
            Self::Nsd => "nsd.conf",
            Self::Knotd => "knot.conf",
            Self::Unbound => "unbound.conf",
            Self::Named => "named.conf",
            Self::Freeradius => "radiusd.conf",
            Self::Chronyd => "chrony.conf",
            Self::Rsyslogd => "rsyslog.conf",
            Self::Turnserver => "turnserver.conf",
        }
    }

    /// Writes its configuration into `folder`, the only place that it writes to. Returns the command line that runs it
    /// in the foreground.
    ///
    /// A DNS server has the names `h0` to `h(names - 1)` of `example.test`. FreeRADIUS has the user of the file
    /// `users`, and the secret of the file `secret`.
    ///
    /// # Errors
    /// A file cannot be written.
    ///
    /// # Panics
    /// The program was not unpacked.
    pub fn prepare(self, folder: &Path, names: usize) -> io::Result<Vec<String>> {
        let here = folder.display();
        let put = |name: &str, text: &str| fs::write(folder.join(name), text);
        let command = match self {
            Self::Nsd => format!("nsd -d -c {here}/nsd.conf"),
            Self::Knotd => format!("knotd -c {here}/knot.conf"),
            Self::Unbound => format!("unbound -d -p -c {here}/unbound.conf"),
            Self::Named => format!("named -g -c {here}/named.conf"),
            Self::Chronyd => format!("/var/cache/udpath/chronyd -d -x -u root -f {here}/chrony.conf"),
            Self::Rsyslogd => format!("rsyslogd -n -iNONE -f {here}/rsyslog.conf"),
            Self::Turnserver => format!("turnserver -c {here}/turnserver.conf"),
            Self::Freeradius => {
                put("users", "user  Cleartext-Password := \"password\"\n")?;
                put("secret", SECRET)?;
                let mut words = freeradius(folder, SECRET, &folder.join("users"))?;
                // Without the shell that sends its output to stderr.
                return Ok(words.split_off(4));
            }
        };
        if matches!(self, Self::Nsd | Self::Knotd | Self::Named) {
            put("zone", &zone(names))?;
        }
        put(self.conf(), &self.configuration(&here.to_string(), names))?;
        Ok(command.split(' ').map(String::from).collect())
    }

    fn configuration(self, folder: &str, names: usize) -> String {
        match self {
            Self::Nsd => format!(
                "server:\n  ip-address: 0.0.0.0@5300\n  username: \"\"\n  zonesdir: {folder}\n  pidfile: \"\"\n  \
                 database: \"\"\n  xfrdfile: {folder}/xfrd\n  xfrdir: {folder}\n  zonelistfile: {folder}/list\n\
                 remote-control:\n  control-enable: no\nzone:\n  name: example.test\n  zonefile: zone\n"
            ),
            Self::Knotd => format!(
                "server:\n    rundir: \"{folder}\"\n    listen: 0.0.0.0@5300\ndatabase:\n    storage: \"{folder}\"\n\
                 template:\n  - id: default\n    storage: \"{folder}\"\n    file: \"zone\"\nzone:\n  - domain: example.test\n"
            ),
            Self::Unbound => {
                let mut conf = format!(
                    "server:\n  interface: 0.0.0.0\n  port: 5300\n  access-control: 0.0.0.0/0 allow\n  username: \"\"\n  \
                     chroot: \"\"\n  directory: {folder}\n  pidfile: \"\"\n  use-syslog: no\n  \
                     local-zone: \"example.test.\" static\n"
                );
                for number in 0..names {
                    let _ = writeln!(conf, "  local-data: \"h{number}.example.test. A 198.18.0.1\"");
                }
                conf + "remote-control:\n  control-enable: no\n"
            }
            Self::Named => format!(
                "options {{\n\tdirectory \"{folder}\";\n\tdnssec-validation no;\n\tlisten-on port 5300 {{ any; }};\n\t\
                 listen-on-v6 {{ none; }};\n\tpid-file none;\n\tsession-keyfile none;\n}};\ncontrols {{ }};\n\
                 zone \"example.test\" {{ type master; file \"{folder}/zone\"; }};\n"
            ),
            Self::Chronyd => format!(
                "allow\nlocal stratum 5\ncmdport 0\nbindcmdaddress /\npidfile {folder}/chrony.pid\n\
                 driftfile {folder}/drift\nmaxupdateskew 100.0\nmakestep 1 3\n"
            ),
            Self::Rsyslogd => format!(
                "global(workDirectory=\"{folder}\")\nmodule(load=\"imudp\")\ninput(type=\"imudp\" port=\"5140\")\n\
                 *.* action(type=\"omfile\" file=\"{folder}/messages\")\n"
            ),
            Self::Turnserver => format!(
                "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nno-tls\nno-dtls\nno-cli\nuserdb={folder}/turndb\n\
                 pidfile={folder}/turn.pid\nlog-file=stdout\n"
            ),
            // Written by `freeradius`.
            Self::Freeradius => String::new(),
        }
    }
}

/// A master file with `names` addresses.
fn zone(names: usize) -> String {
    let mut zone =
        "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n".to_owned();
    for number in 0..names {
        let _ = writeln!(zone, "h{number} A 198.18.0.1");
    }
    zone
}
