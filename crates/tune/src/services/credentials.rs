//! Whose rights a running server has: with these its files are read, and its checker is run.
//!
//! A user may start any program with any arguments, and a server's own user may change what root has written for it. So
//! nothing is opened for a server that the server could not open itself.
//!
//! ```text
//!  /proc/PID/status ─▸ Credentials ── run(work)   in a thread of this process that has them, and no capability
//!                                 └── setpriv     the arguments of setpriv(1), for a program
//! ```

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use udpath_files::kernel;

/// How long the files of a server may take to be read: those of a disk take milliseconds. Shorter: a configuration on a
/// slow network is rejected. Longer: one on a file system that never answers holds the plan up for as long.
const READING: Duration = Duration::from_secs(10);
/// With one of these, a process opens files that are not its user's.
const ANY_FILE: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// User and groups of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub(super) user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Credentials {
    /// Those of a running process.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let status = kernel::text(format!("/proc/{pid}/status"))?;
        Self::parse(&status).ok_or_else(|| io::Error::other("its status has no user"))
    }

    /// From `/proc/PID/status`. A process with several users at once, as one that has put root aside for a moment or
    /// was started by a program with the set-user-ID bit, has the rights of the one that is not root. `None` if a list
    /// of users or groups is missing or is not of numbers.
    #[must_use]
    pub fn parse(status: &str) -> Option<Self> {
        let numbers = |name: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let one = |ids: Vec<u32>| ids.iter().copied().find(|id| *id != 0).or(ids.first().copied());
        Some(Self {
            user: one(numbers("Uid:")?)?,
            group: one(numbers("Gid:")?)?,
            groups: numbers("Groups:")?,
        })
    }

    /// Those of this process.
    pub(super) fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Whether it may read what root may.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Does `work` in a thread with these rights and without capabilities. A process that could not take them anyway,
    /// since it may neither change its user nor open files of others, does it with its own.
    ///
    /// # Errors
    /// The rights cannot be taken; or it takes longer than [`READING`], and then the thread is left behind.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (done, result) = mpsc::sync_channel(1);
        let own = self.clone();
        let inside = move || {
            // Nobody listens if it took too long.
            let _ = done.send(own.take().map(|()| work()));
        };
        thread::Builder::new().name("server's files".to_owned()).spawn(inside)?;
        match result.recv_timeout(READING) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(io::Error::other(format!("was not read within {} s", READING.as_secs())))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the reading thread ended early"))
            }
        }
    }

    /// Gives them to the calling thread, for good. Its real user stays: a server's user must not be able to send it
    /// signals.
    fn take(&self) -> io::Result<()> {
        if self.user == geteuid().as_raw() {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let taken = set_thread_groups(&groups)
            .and_then(|()| set_thread_res_gid(None, Gid::from_raw(self.group), None))
            .and_then(|()| set_thread_res_uid(None, Uid::from_raw(self.user), None));
        match taken {
            Err(_) if !capabilities(None)?.effective.intersects(ANY_FILE) => Ok(()),
            taken => Ok(taken?),
        }
    }

    /// The arguments of setpriv(1) that give them to a program, without any capability and any way to get one; but for
    /// the one to change its root, if it must.
    pub(super) fn setpriv(&self, changes_root: bool) -> Vec<String> {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let groups = match groups.is_empty() {
            true => "--clear-groups".to_owned(),
            false => format!("--groups={}", groups.join(",")),
        };
        let kept = if changes_root { "-all,+sys_chroot" } else { "-all" };
        let more = ["--inh-caps", "--ambient-caps", "--bounding-set"].map(|set| format!("{set}={kept}"));
        let end = ["--no-new-privs", "--"].map(str::to_owned);
        let own = [format!("--reuid={}", self.user), format!("--regid={}", self.group), groups];
        own.into_iter().chain(more).chain(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_process_with_several_users_has_the_rights_of_the_one_that_is_not_root() {
        let status = |uid: &str, groups: &str| {
            format!("Name:\tchronyd\nUmask:\t0022\nUid:\t{uid}\nGid:\t7\t7\t7\t7\nGroups:\t{groups} \n")
        };
        for (uid, user) in
            [("0\t0\t0\t0", 0), ("1000\t0\t0\t0", 1000), ("0\t103\t0\t103", 103), ("4\t4\t4\t4", 4)]
        {
            let found = Credentials::parse(&status(uid, "42 111")).unwrap();
            assert_eq!((found.user, found.group, found.groups), (user, 7, vec![42, 111]), "{uid}");
        }
        assert!(Credentials::parse(&status("1\t1\t1\t1", "")).unwrap().groups.is_empty());
        for bad in ["", "Uid:\tx\n", "Uid:\t1\t1\t1\t1\n"] {
            assert_eq!(Credentials::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Credentials::own().unwrap().user, geteuid().as_raw());
    }

    #[test]
    fn a_thread_reads_what_the_user_may_read_and_the_others_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let user = Credentials { user: 1234, group: 1234, groups: vec![4321] };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, group) in [("root", 0), ("group", 4321)] {
            fs::write(at(name), name).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o640)).unwrap();
            if geteuid().is_root() {
                chown(at(name), Some(0), Some(group)).unwrap();
            }
        }
        let (root, group) = (at("root"), at("group"));
        let read = move || (udpath_files::text(root, 9).is_ok(), udpath_files::text(group, 9).is_ok());
        let found = user.run(read.clone()).unwrap();
        // Without root, the rights are this process's own.
        assert_eq!(found, if geteuid().is_root() { (false, true) } else { (true, true) });
        assert_eq!(read(), (true, true));
        assert!(user.run(|| 7).is_ok_and(|seven| seven == 7));
    }
}
