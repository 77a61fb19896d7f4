//! A program that is run with a server's rights, on files that are not in place yet.
//!
//! ```text
//!  setpriv --pdeathsig KILL       ends with this process; a session of its own, no terminal, none of our descriptors
//!   └─ unshare                    namespaces of its own: mounts, processes, network, IPC
//!       └─ sh (process 1)         the new files, mounted over the old ones; when it ends, the kernel kills all that is left
//!           └─ setpriv            the server's user and groups, no capability, none to be had
//!               └─ nsd-checkconf /etc/nsd/nsd.conf
//! ```
//! A checker that changes its root, as `named-checkconf -t`, keeps CAP_SYS_CHROOT: with another root it opens no file
//! that the user could not open, and since it gains nothing at an exec, no program with the set-user-ID bit takes that
//! root for the machine's. A server's configuration may name modules and scripts, which its checker loads. They can do
//! here what the server's user can do anyway, and less: nothing over the network, to no other process, and not for
//! longer than the limit.

use std::io::{self, PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use udpath_files::owners::only_root;

use super::credentials::Credentials;

mod sys;

/// Where root's programs are.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// Pause between two looks at the program, nanoseconds.
const POLL: i64 = 20_000_000;
/// Most bytes read after it has ended. Lower: its last words are missing: a pipe has 64 KiB. Higher: who has been given
/// its pipe, and is none of it, holds up its end for longer.
const AFTER_ITS_END: usize = 1 << 16;
/// Most bytes that are kept of what it wrote: its last words.
const WORDS: usize = 600;
/// The exit code of the script if the files could not be put in place.
const UNPREPARED: i32 = 125;
/// Most bytes that the copy of a folder may take. Lower: drop-ins beside much data cannot be checked. Higher: a folder
/// takes as much memory while it is checked.
const COPY: &str = "size=64m,mode=0755";
/// Arguments: the folder for copies; the number of files; for each its new text's file and its path; then the program.
/// A file that does not exist cannot be mounted over, so a copy of its folder is. Nothing happens before a line arrives
/// on stdin: by then the way to end all of it is set up.
const SCRIPT: &str = r#"
echo
read -r go || exit 125
prepare() {
    while [ "$count" -gt 0 ]; do
        new=$1; path=$2; shift 2
        if [ -e "$path" ]; then
            chown --reference="$path" "$new" && chmod --reference="$path" "$new" &&
                mount --bind "$new" "$path" || return 1
        else
            folder=$copies/$count
            mkdir "$folder" && cp -a "$(dirname "$path")/." "$folder" &&
                cp "$new" "$folder/$(basename "$path")" && chmod 644 "$folder/$(basename "$path")" &&
                mount --bind "$folder" "$(dirname "$path")" || return 1
        fi
        count=$((count - 1))
    done
}
copies=$1; options=$2; count=$3; shift 3
files=$((2 * count))
mount -t tmpfs -o "$options" udpath "$copies" && prepare "$@" || exit 125
while [ "$files" -gt 0 ]; do shift; files=$((files - 1)); done
cd / && "$@" < /dev/null
exit $?
"#;

/// A program that only root can change: given by its path, or by its name.
///
/// # Errors
/// There is none, or others can change it.
pub(super) fn program(name: &str, beside: &Path) -> io::Result<PathBuf> {
    if name.contains('/') {
        return only_root(Path::new(name)).map_err(|why| {
            io::Error::other(format!("others than root can change it ({why}), so it is not run for this"))
        });
    }
    let own = beside.parent().map(|folder| folder.join(name)).and_then(|path| only_root(&path).ok());
    let found =
        own.or_else(|| FOLDERS.iter().find_map(|folder| only_root(&Path::new(folder).join(name)).ok()));
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no {name} in {} that only root can change", FOLDERS.join(", ")),
        )
    })
}

/// What is run, and how.
pub(super) struct Confined<'a> {
    /// Whose rights it has.
    pub(super) rights: &'a Credentials,
    /// An empty folder of root's, for copies.
    pub(super) copies: &'a Path,
    /// Files with new texts, and the paths at which they are to be seen.
    pub(super) files: &'a [(PathBuf, String)],
    /// The program and its arguments.
    pub(super) command: &'a [String],
    /// Whether it sees the machine's interfaces, instead of none.
    pub(super) sees_network: bool,
    /// Whether it changes its root.
    pub(super) changes_root: bool,
}

impl Confined<'_> {
    /// Runs it to its end; returns its status, [`None`] if it was killed at the limit, and its last words, on one line.
    ///
    /// # Errors
    /// It could not be started, or the files could not be put in place.
    pub(super) fn run(&self, limit: Duration) -> io::Result<(Option<ExitStatus>, String)> {
        let mut command = self.command()?;
        sys::inherit_nothing(&mut command);
        let (output, writer) = io::pipe()?;
        // What it sends elsewhere may keep the pipe open after its end: nothing waits for the pipe alone.
        ioctl_fionbio(&output, true)?;
        command.stdout(writer.try_clone()?).stderr(writer).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        // The write end is the child's alone from here on.
        drop(command);
        let mut words = Words { go: child.stdin.take(), output, last: Vec::new() };
        let status = words.until_it_ends(&mut child, limit)?;
        let words = words.last();
        if status.is_some_and(|status| status.code() == Some(UNPREPARED)) {
            return Err(io::Error::other(format!("the new files cannot be put in place for it: {words}")));
        }
        Ok((status, words))
    }

    fn command(&self) -> io::Result<Command> {
        let tool = |name: &str| program(name, Path::new("/"));
        let mut command = Command::new(tool("setpriv")?);
        // Nothing of root's environment.
        command.env_clear().env("PATH", FOLDERS.join(":")).env("LC_ALL", "C.UTF-8");
        command.args(["--pdeathsig", "KILL", "--"]).arg(tool("unshare")?);
        command.args(["--mount", "--propagation", "private", "--ipc", "--uts"]);
        command.args((!self.sees_network).then_some("--net"));
        command.args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]);
        command.args(["/bin/sh", "-c", SCRIPT, "sh"]).arg(self.copies).arg(COPY);
        command.arg(self.files.len().to_string());
        for (new, path) in self.files {
            command.arg(new).arg(path);
        }
        command.arg(tool("setpriv")?).args(self.rights.setpriv(self.changes_root)).args(self.command);
        Ok(command)
    }
}

/// What it writes.
struct Words {
    /// Where it waits for a line, until its first words are there: it is ready.
    go: Option<ChildStdin>,
    output: PipeReader,
    last: Vec<u8>,
}

impl Words {
    /// Reads until the child ends, or kills it at the limit: then [`None`].
    fn until_it_ends(&mut self, child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = child.try_wait()? {
                // All of it has ended with its first process, so that all is in the pipe.
                let mut read = 0;
                while let Some(count) = self.read()?.filter(|_| read < AFTER_ITS_END) {
                    read += count;
                }
                return Ok(Some(status));
            }
            if Instant::now() >= until {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: POLL };
            let ready = match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&wait)) {
                Ok(ready) => ready > 0,
                Err(rustix::io::Errno::INTR) => false,
                Err(error) => return Err(error.into()),
            };
            if ready && self.read()?.is_none() {
                // It has closed its output.
                std::thread::sleep(Duration::from_nanos(POLL.cast_unsigned()));
            }
        }
    }

    /// The bytes that there were; [`None`] if there were none.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let mut some = [0; 4096];
        let count = match self.output.read(&mut some) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.last.extend_from_slice(&some[..count]);
        self.last.drain(..self.last.len().saturating_sub(WORDS));
        if let Some(mut go) = self.go.take() {
            // If it has ended, its status says why.
            let _ = go.write_all(b"go\n");
        }
        Ok(Some(count))
    }

    fn last(&self) -> String {
        words(&self.last)
    }
}

/// Text on one line, without what a terminal would obey.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|line| line.replace(char::is_control, " ").trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::geteuid;

    use super::*;

    /// Runs a script with the rights of a user that nobody is; [`None`] without root.
    fn run(script: &str, limit: Duration) -> Option<(Option<ExitStatus>, String)> {
        run_as(script, limit, false)
    }

    fn run_as(script: &str, limit: Duration, changes_root: bool) -> Option<(Option<ExitStatus>, String)> {
        if !geteuid().is_root() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (old, new, copies) =
            (folder.path().join("old"), folder.path().join("new"), folder.path().join("copies"));
        fs::write(&old, "old").unwrap();
        fs::write(&new, "new").unwrap();
        fs::create_dir(&copies).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let rights = Credentials::parse("Uid:\t7 7 7 7\nGid:\t8 8 8 8\nGroups:\t9\n").unwrap();
        let shown = old.display().to_string();
        let command = ["/bin/sh", "-c", script, "sh", &shown].map(str::to_owned);
        let files = [(new, shown)];
        let confined = Confined {
            rights: &rights,
            copies: &copies,
            files: &files,
            command: &command,
            sees_network: false,
            changes_root,
        };
        let ended = confined.run(limit).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "old", "everybody else's");
        Some(ended)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_has_the_rights_of_the_servers_user_and_nothing_else() {
        let script = "id -u; id -g; id -G; grep -E '^Cap(Prm|Eff|Bnd|Amb)|^NoNewPrivs' /proc/self/status | \
                      cut -f 2; ls /sys/class/net /proc | grep -cE '^[0-9]+$'; env | grep -c CARGO; exit 3";
        let Some((status, words)) = run(script, LONG) else { return };
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let none = "0".repeat(16);
        assert!(words.starts_with(&format!("7; 8; 8 9; {none}; {none}; {none}; {none}; 1; ")), "{words}");
        // Bit 18 is CAP_SYS_CHROOT.
        let chroot = format!("{:016x}", 1 << 18);
        let (_, kept) = run_as(script, LONG, true).unwrap();
        assert!(
            kept.starts_with(&format!("7; 8; 8 9; {chroot}; {chroot}; {chroot}; {chroot}; 1; ")),
            "{kept}"
        );
        let processes: u32 = words.split("; ").nth(8).unwrap().parse().unwrap();
        assert!(processes < 10 && words.ends_with("; 0"), "{words}");
    }

    #[test]
    fn it_sees_the_new_file_and_leaves_nothing_behind() {
        let mark = format!("301.{}", std::process::id());
        let script = format!("cat \"$1\"; setsid sh -c 'trap \"\" TERM HUP INT; sleep {mark}; :' &");
        let Some((status, words)) = run(&script, LONG) else { return };
        assert!(status.unwrap().success() && words == "new", "{words}");
        let is_left = |entry: &fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("sleep\0{mark}"))
        };
        assert!(!fs::read_dir("/proc").unwrap().flatten().any(|entry| is_left(&entry)));
    }

    #[test]
    fn it_is_killed_at_the_limit_and_its_words_are_bounded() {
        let Some((status, words)) = run("echo begun; sleep 300", Duration::from_secs(3)) else { return };
        assert_eq!((status, words.as_str()), (None, "begun"));
        let (status, words) = run("head -c 9000000 /dev/zero | tr '\\0' '\\033'; echo end", LONG).unwrap();
        assert!(status.unwrap().success() && words == "end", "{words:?}");
    }

    #[test]
    fn programs_that_others_can_change_are_not_run() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let fake = folder.path().join("sh");
        fs::copy("/bin/sh", &fake).unwrap();
        let said = program(fake.to_str().unwrap(), &fake).unwrap_err().to_string();
        assert!(said.contains("others than root can change it"), "{said}");
        assert_eq!(program("sh", &fake).unwrap(), only_root(Path::new("/bin/sh")).unwrap());
        assert!(program("no-such-checker", &fake).unwrap_err().to_string().contains("no-such-checker"));
    }
}
