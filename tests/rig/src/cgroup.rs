//! A cgroup of version 2 that a test makes, with programs that run in groups below it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Ends the programs and removes the groups once its input ends: with the test, however that ends. A group can be
/// removed only a moment after its last process has ended.
const REMOVE: &str = r#"
cat > /dev/null
echo 1 > "$0/cgroup.kill"
tries=0
while [ -d "$0" ] && [ $tries -lt 600 ]; do
    find "$0" -depth -type d -exec rmdir {} \; 2> /dev/null
    tries=$((tries + 1)); sleep 0.05
done
"#;

/// A cgroup below the root, with its own ones below it; removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    root: PathBuf,
    name: String,
    remover: Child,
}

impl Cgroup {
    /// Makes one.
    ///
    /// # Panics
    /// No permission, or no cgroup of version 2 is mounted.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let root = Self::root();
        let name = format!("udpath-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let remover =
            Command::new("sh").arg("-c").arg(REMOVE).arg(root.join(&name)).stdin(Stdio::piped()).spawn();
        fs::create_dir(root.join(&name)).unwrap();
        Self { root, name, remover: remover.unwrap() }
    }

    /// Where version 2 is mounted.
    ///
    /// # Panics
    /// Nowhere.
    #[must_use]
    pub fn root() -> PathBuf {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let found = lines.find(|line| line.get(2) == Some(&"cgroup2"));
        PathBuf::from(found.expect("cgroup of version 2 is mounted")[1])
    }

    /// The group of this process, which its children are in as well.
    ///
    /// # Panics
    /// It is in none of version 2.
    #[must_use]
    pub fn of_this_process() -> PathBuf {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        Self::root().join(own.expect("this process is in a cgroup of version 2"))
    }

    /// The name of the group `child` below this one, as in /proc/PID/cgroup.
    #[must_use]
    pub fn name(&self, child: &str) -> String {
        format!("/{}/{child}", self.name)
    }

    /// Makes the group `child` anew.
    ///
    /// # Panics
    /// It exists, and has processes.
    pub fn make(&self, child: &str) {
        let path = self.path(child);
        if path.exists() {
            self.remove(child);
        }
        fs::create_dir(path).unwrap();
    }

    /// Removes the group `child`.
    ///
    /// # Panics
    /// It has processes.
    pub fn remove(&self, child: &str) {
        let path = self.path(child);
        crate::awaited("an empty group", crate::TIMEOUT, || fs::remove_dir(&path).ok());
    }

    /// Where the group `child` is.
    #[must_use]
    pub fn path(&self, child: &str) -> PathBuf {
        self.root.join(&self.name).join(child)
    }

    /// Sends a signal to each process of the group `child` and of those below it, as a service manager does first when
    /// a service is stopped.
    ///
    /// # Panics
    /// There is no such group.
    pub fn signal(&self, child: &str, signal: Signal) {
        for pid in self.pids(child) {
            // It may have ended since.
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
        }
    }

    /// Processes of the group `child`, then those of the groups below it.
    ///
    /// # Panics
    /// There is no such group.
    #[must_use]
    pub fn pids(&self, child: &str) -> Vec<i32> {
        let text = fs::read_to_string(self.path(child).join("cgroup.procs")).unwrap();
        let own: Vec<i32> = text.lines().map(|pid| pid.parse().unwrap()).collect();
        let below = self.below(child).into_iter().flat_map(|group| {
            // It may have been removed since.
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        });
        own.into_iter().chain(below).collect()
    }

    /// The groups below the group `child`.
    #[must_use]
    pub fn below(&self, child: &str) -> Vec<PathBuf> {
        let mut found = vec![self.path(child)];
        let mut at = 0;
        while at < found.len() {
            let inside = fs::read_dir(&found[at]).into_iter().flatten().flatten();
            let folders = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
            found.extend(folders);
            at += 1;
        }
        found.split_off(1)
    }

    /// Ends all processes of the group `child`, as a service manager does when a service is stopped.
    ///
    /// # Panics
    /// There is no such group.
    pub fn kill(&self, child: &str) {
        fs::write(self.path(child).join("cgroup.kill"), "1").unwrap();
    }

    /// What runs a command line in the group `child`: the words before it.
    #[must_use]
    pub fn words(&self, child: &str) -> [String; 4] {
        let path = self.path(child).display().to_string();
        ["sh".to_owned(), "-c".to_owned(), r#"echo $$ > "$0/cgroup.procs" && exec "$@""#.to_owned(), path]
    }

    /// The command `program`, which runs in the group `child`.
    #[must_use]
    pub fn command(&self, child: &str, program: impl AsRef<Path>) -> Command {
        let [shell, words @ ..] = self.words(child);
        let mut command = Command::new(shell);
        command.args(words).arg(program.as_ref());
        command
    }
}

impl Default for Cgroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}
