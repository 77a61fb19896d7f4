//! What a figure belongs to: the benchmark's own sources and the crates it measures.
//!
//! Their hash is that of git's list of these files (`git ls-files -s`: mode, hash and path), without tests.
//! scripts/figures.sh computes the same from the paths beside a figure, and prints the figure as stale where it
//! differs.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where the benchmarks are, from the root of the repository.
const BENCHES: &str = "benches/src";
/// Modules that print and write figures, whatever they are: a change of them changes none.
const BOOKKEEPING: [&str; 3] = ["main", "results", "sources"];

/// The files that a figure belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// Files and folders, from the root of the repository, with a space between them.
    pub(crate) paths: String,
    /// Their hash, twelve hexadecimal digits.
    pub(crate) hash: String,
}

impl Sources {
    /// Those of the benchmark `name`, which measures these crates; a word with a slash is a file.
    ///
    /// # Errors
    /// A file cannot be read, or git does not know it.
    pub(crate) fn new(name: &str, measures: impl IntoIterator<Item = &'static str>) -> Result<Self> {
        let mut paths = BTreeSet::new();
        add_module(name, &mut paths)?;
        for measured in measures {
            let path =
                if measured.contains('/') { measured.to_owned() } else { format!("crates/{measured}") };
            if !Path::new(&path).exists() {
                bail!("{name} measures {path}, which does not exist");
            }
            paths.insert(path);
        }
        let paths: Vec<String> = paths.into_iter().collect();
        Self::of_paths(&paths.join(" "))
    }

    /// Those of paths with a space between them.
    ///
    /// # Errors
    /// Git does not know them.
    pub(crate) fn of_paths(paths: &str) -> Result<Self> {
        Ok(Self { paths: paths.to_owned(), hash: hash(&paths.split(' ').collect::<Vec<_>>())? })
    }
}

/// Adds a module's files, and those of the modules it uses.
fn add_module(name: &str, paths: &mut BTreeSet<String>) -> Result<()> {
    let (file, folder) = (format!("{BENCHES}/{name}.rs"), format!("{BENCHES}/{name}"));
    if !paths.insert(file.clone()) {
        return Ok(());
    }
    let mut files = vec![file];
    if Path::new(&folder).is_dir() {
        files.extend(rust_files(Path::new(&folder))?);
        paths.insert(folder);
    }
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        for (_, rest) in text.match_indices("crate::").map(|(at, found)| text.split_at(at + found.len())) {
            let used =
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            if !BOOKKEEPING.contains(&used) && Path::new(&format!("{BENCHES}/{used}.rs")).exists() {
                add_module(used, paths)?;
            }
        }
    }
    Ok(())
}

fn rust_files(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.display().to_string());
        }
    }
    Ok(files)
}

/// `git ls-files -s PATHS | git hash-object --stdin`, as scripts/figures.sh has it.
fn hash(paths: &[&str]) -> Result<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-s", "--"])
        .args(paths)
        .args([":(exclude,glob)**/tests/**", ":(exclude,glob)**/tests.rs", ":(exclude,glob)**/fixtures/**"])
        .output()
        .context("cannot run git ls-files")?;
    if !listed.status.success() || listed.stdout.is_empty() {
        bail!("git lists none of {}: {}", paths.join(" "), String::from_utf8_lossy(&listed.stderr).trim());
    }
    let mut hasher = Command::new("git")
        .args(["hash-object", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run git hash-object")?;
    let written = hasher.stdin.take().map(|mut stdin| stdin.write_all(&listed.stdout));
    written.transpose().context("cannot write to git hash-object")?;
    let done = hasher.wait_with_output().context("cannot run git hash-object")?;
    let hash = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    match hash.get(..12) {
        Some(short) if done.status.success() => Ok(short.to_owned()),
        _ => bail!("git hash-object printed '{hash}'"),
    }
}
