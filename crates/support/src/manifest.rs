//! The contents of a capture, for its reader and its sender.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::redact::{Redacted, Redactor};
use udpath_host::{Missing, Snapshot};

/// Name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// Version of the JSON form. Incremented when a field is removed or changes meaning, but not when a field is added.
pub const SCHEMA: &str = "udpath.support/1";

/// What is always left out, whether redacted or not.
const LEFT_OUT: [&str; 6] = [
    "processes without a UDP socket, unless they change settings or stamp packets",
    "the environment of every process, and every open file that is not a UDP socket",
    "boot parameters that do not bear on packets",
    "mounts other than those of control groups",
    "of files that set things when a device appears or at boot: comments, and files that set nothing of packets",
    "serial numbers of machine and devices, the machine's identifier",
];

/// The contents of a capture.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of udpath that made it.
    pub version: String,
    /// When its last snapshot was taken, milliseconds since 1970.
    pub taken: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture, in Rust's naming.
    pub architecture: String,
    /// Its snapshots, the earlier one first; each is a folder.
    pub pictures: Vec<String>,
    /// Milliseconds between two snapshots.
    pub interval: Option<u64>,
    /// Files of this machine in it.
    pub files: usize,
    /// Kernel answers in it.
    pub answers: usize,
    /// Total size, bytes.
    pub bytes: usize,
    /// What could not be read, and why.
    pub missing: Vec<Missing>,
    /// Why `status.json` is not in it.
    pub no_status: Option<String>,
    /// What was replaced; `None`: it was made with `--no-redact` and contains names, addresses and command lines
    /// unchanged.
    pub redacted: Option<Vec<Redacted>>,
    /// What should have been replaced but could not be.
    pub not_redacted: Vec<String>,
    /// What was left out, whether redacted or not.
    pub left_out: Vec<String>,
}

impl Manifest {
    pub(super) fn new(
        read: &Snapshot,
        pictures: &[String],
        times: &[u64],
        files: &BTreeMap<String, Option<String>>,
        no_status: Option<&String>,
        redactor: Option<&Redactor>,
    ) -> Self {
        let is_answer = |name: &&String| name.split('/').nth(1) == Some("udpath");
        let answers = files.keys().filter(is_answer).count();
        let texts = files.values().flatten();
        Self {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            taken: read.taken,
            kernel: read.kernel.release.clone(),
            architecture: std::env::consts::ARCH.into(),
            pictures: pictures.to_vec(),
            interval: times.first().zip(times.get(1)).map(|(earlier, now)| now.saturating_sub(*earlier)),
            files: texts.clone().count() - answers,
            answers,
            bytes: texts.map(String::len).sum(),
            missing: read.missing.clone(),
            no_status: no_status.cloned(),
            redacted: redactor.map(Redactor::counts),
            not_redacted: redactor.map(Redactor::left).unwrap_or_default(),
            left_out: LEFT_OUT.map(str::to_owned).to_vec(),
        }
    }
}
