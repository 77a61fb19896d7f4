//! The program on emulated machines: one with 20 CPUs in two nodes and 16 queues with RSS, and one with each supported
//! kernel. Each is booted once; the tests examine the recorded results. Needs root.
//!
//! A machine runs on one thread of the emulator, so two at a time take as long as one. Tests start in the order of
//! their names: first both of `kernels`, each with a machine of its own; the others share one.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod experiment;
mod kernels;
mod machine;
mod packets;
mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use udpath_rig::{check_documents, one_sentence};

use machine::MACHINE;

/// The recorded results of the machine.
struct Recorded {
    steps: BTreeMap<String, Step>,
    /// Its `/proc` and `/sys`.
    captured: PathBuf,
}

struct Step {
    code: i32,
    out: String,
    err: String,
}

impl Recorded {
    /// Stdout of a step that must have succeeded.
    fn fine(&self, step: &str) -> &str {
        let Step { code, out, err } = &self.steps[step];
        assert_eq!(*code, 0, "{step}: {out}{err}");
        check_documents(step, out);
        out
    }

    /// Asserts that a step exited with `code` and one sentence that contains `part`; `asked` identifies the request.
    #[track_caller]
    fn refused(&self, step: &str, code: i32, part: &str, asked: &str) {
        let step = &self.steps[step];
        assert_eq!(step.code, code, "{asked}: {}", step.err);
        one_sentence(asked, &step.err);
        assert!(step.err.contains(part), "{asked}: {part:?} is not in {}", step.err);
    }
}

/// Powers the machine off if the test fails while it runs.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(std::thread::panicking(), Ordering::Relaxed);
    }
}

fn steps(folder: &Path) -> BTreeMap<String, Step> {
    let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".code").map(str::to_owned));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    names
        .map(|name| {
            let code = read(&format!("{name}.code")).trim().parse().unwrap();
            let step = Step { code, out: read(&format!("{name}.out")), err: read(&format!("{name}.err")) };
            (name, step)
        })
        .collect()
}
