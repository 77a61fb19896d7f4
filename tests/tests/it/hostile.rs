//! What root does with folders, links and files that another user has made: an unprivileged one (65534) attacks, root
//! runs a verb. In a mount namespace with a /tmp of its own, so that nothing of the machine is at stake. Needs root.

mod journal;
mod output;

use std::path::Path;
use std::process::{Command, Stdio};

use udpath_rig::{Said, program};

/// A folder that everybody may write, as `/tmp` is, with root's own files below `root`.
struct Scene {
    folder: tempfile::TempDir,
}

/// Runs a command as the attacker.
const ATTACKER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        scene.shell("chmod 1777 $D; mkdir -m 755 $D/root").fine();
        scene
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn at(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// Runs shell commands as root; `$U` is the program, `$D` the folder, `$A` the beginning of an attacker's command.
    fn shell(&self, lines: &str) -> Said {
        // Whatever hangs is ended, and fails the test by its exit code.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "300", "sh", "-e", "-c", lines]);
        command.env("U", program()).env("D", self.path()).env("A", ATTACKER);
        Said::from(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the program as root.
    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "120"]).arg(program()).args(arguments).current_dir(self.path());
        Said::from(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Every file of the scene: type, mode, owner, size, times of the last change of it and of its inode, target.
    fn look(&self) -> String {
        self.shell("find $D -printf '%p %M %U:%G %s %T@ %C@ %l\\n' | sort").fine().out.clone()
    }
}
