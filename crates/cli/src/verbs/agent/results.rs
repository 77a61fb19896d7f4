//! The results that an agent keeps: a file each, NAME.START.json, up to a number and a size. Whoever may announce loads
//! decides how many there are and how large, so the oldest make room.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use udpath_load::result::LoadResult;

/// Most names in the folder. More: a folder of somebody else's files is read for each result. Fewer: results are not
/// kept.
const MAX_NAMES: usize = 100_000;
/// Read and write for the agent's user, read for others.
const MODE: u32 = 0o644;

/// See the module.
#[derive(Debug)]
pub(super) struct Results {
    /// The agent's name: the files of others are not touched.
    pub(super) agent: String,
    pub(super) folder: PathBuf,
    /// How many are kept.
    pub(super) most: usize,
    /// Bytes of all of them.
    pub(super) size: u64,
}

/// A kept result.
struct Kept {
    /// When its load began, seconds since 1970.
    start: u64,
    path: PathBuf,
    size: u64,
}

impl Results {
    /// Keeps a result; the oldest ones are removed where it would exceed number or size.
    pub(super) fn keep(&self, result: &LoadResult) -> anyhow::Result<()> {
        let start = result.start.map_or(0, |start| start.at_ns / 1_000_000_000);
        self.write(start, udpath_report::to_json(result).as_bytes())
    }

    fn write(&self, start: u64, text: &[u8]) -> anyhow::Result<()> {
        let path = self.folder.join(format!("{}.{start}.json", self.agent));
        let size = text.len() as u64;
        if self.most == 0 || size > self.size {
            bail!(
                "{} would have {size} bytes (udpath agent --max-results, --max-results-size)",
                path.display()
            );
        }
        let cannot = || format!("cannot write {}", path.display());
        // A load with the same start makes room as well.
        let all = self.kept().with_context(cannot)?.into_iter();
        let (mut superfluous, mut kept): (Vec<Kept>, Vec<Kept>) = all.partition(|one| one.path == path);
        kept.sort_by_key(|one| std::cmp::Reverse(one.start));
        let sum = |kept: &[Kept]| kept.iter().map(|one| one.size).sum::<u64>();
        while kept.len() >= self.most || sum(&kept) > self.size - size {
            superfluous.extend(kept.pop());
        }
        for old in superfluous {
            let cannot = || format!("cannot remove {}", old.path.display());
            udpath_files::replace::remove(&old.path).with_context(cannot)?;
        }
        udpath_files::replace::whole(&path, text, MODE).with_context(cannot)
    }

    /// This agent's results.
    fn kept(&self) -> std::io::Result<Vec<Kept>> {
        let of = |path: &Path, name: &str| {
            let start = name.strip_prefix(&self.agent)?.strip_prefix('.')?.strip_suffix(".json")?;
            let digits = start.bytes().all(|byte| byte.is_ascii_digit());
            // One that is gone needs no room.
            let size = path.symlink_metadata().ok()?.len();
            Some(Kept { start: digits.then(|| start.parse().ok())??, path: path.to_owned(), size })
        };
        let names = udpath_files::names(&self.folder, MAX_NAMES)?;
        Ok(names.iter().filter_map(|name| of(&self.folder.join(name), name.to_str()?)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_results_make_room_and_no_other_files_do() {
        let folder = tempfile::tempdir().unwrap();
        let others = ["b.1.json", "a.x.json", "a.1.json.old", "a.b.1.json"];
        others.iter().for_each(|name| std::fs::write(folder.path().join(name), "x").unwrap());
        let results = Results { agent: "a".into(), folder: folder.path().into(), most: 3, size: 100 };
        let left = |wanted: &[&str]| {
            let mut all: Vec<String> = wanted.iter().chain(&others).map(ToString::to_string).collect();
            all.sort();
            assert_eq!(names(folder.path()), all);
        };
        for start in [100, 7, 20] {
            results.write(start, &[b' '; 10]).unwrap();
        }
        left(&["a.7.json", "a.20.json", "a.100.json"]);
        // By number, and the oldest by its time, not by its name.
        results.write(101, &[b' '; 10]).unwrap();
        left(&["a.20.json", "a.100.json", "a.101.json"]);
        // By size.
        results.write(102, &[b' '; 85]).unwrap();
        left(&["a.101.json", "a.102.json"]);
        // The same one again takes its own place.
        results.write(102, &[b' '; 90]).unwrap();
        left(&["a.101.json", "a.102.json"]);
        let refused = results.write(103, &[b' '; 101]).unwrap_err().to_string();
        assert!(refused.contains("101 bytes (udpath agent --max-results"), "{refused}");
        left(&["a.101.json", "a.102.json"]);
    }
}
