//! The sysctl file, under a name that sorts after every file that sets the same key to something else.
//!
//! systemd-sysctl and `sysctl --system` sort files by name across all folders; for two files of the same name, the
//! first folder's file is used. The last assignment wins, and an exact name wins over patterns (sysctl.d(5)).

use std::collections::BTreeMap;

use udpath_host::Source;

/// Folders of sysctl.d(5), highest priority first. procps adds the last one.
const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];
/// File name prefixes, tried in this order. sysctl.d(5) reserves 60 to 90 for local files; `99-sysctl.conf`, Debian's
/// link to /etc/sysctl.conf, sorts after those and before `99-udpath`.
const PREFIXES: [&str; 3] = ["90", "99", "zz"];
/// Files read after all of those, and the program that reads them.
const LATE: [(&str, &str); 2] =
    [("/etc/sysctl.conf", "`sysctl --system`"), ("/etc/ufw/sysctl.conf", "ufw, when it starts,")];

/// The name of the file for these keys (with slashes) and values, and notes for the operator about other files that set
/// the same keys.
pub(super) fn place(source: &dyn Source, id: u64, wanted: &[(&str, &str)]) -> (String, Vec<String>) {
    let files = files(source);
    let name = |prefix: &str| format!("{prefix}-udpath-{id:06}.conf");
    let contrary = |name: &str| -> Vec<(&str, String, &str)> {
        let later = files.iter().filter(|(other, _)| other.as_str() > name);
        later
            .flat_map(|(_, (path, text))| {
                wanted
                    .iter()
                    .filter_map(move |(key, value)| Some((*key, other(text, key, value)?, path.as_str())))
            })
            .collect()
    };
    let found = PREFIXES.iter().map(|prefix| name(prefix)).find(|name| contrary(name).is_empty());
    let wins = found.is_some();
    let chosen = found.unwrap_or_else(|| name(PREFIXES[0]));
    let usual = name(PREFIXES[0]);
    let mut notes: Vec<String> = contrary(if wins { &usual } else { &chosen })
        .into_iter()
        .map(|(key, value, path)| {
            let effect = match wins {
                true => format!("/etc/sysctl.d/{chosen} is read later and wins; remove the other line"),
                false => "that file is read last and wins at boot: remove the line there".to_owned(),
            };
            format!("{path} sets {} to {value}; {effect}", dotted(key))
        })
        .collect();
    for (path, reader) in LATE {
        let Ok(text) = source.text(path) else { continue };
        for (key, value) in wanted {
            if let Some(value) = other(&text, key, value) {
                notes.push(format!(
                    "{path} sets {} to {value}, and {reader} reads that file last: remove the line there",
                    dotted(key)
                ));
            }
        }
    }
    (format!("/etc/sysctl.d/{chosen}"), notes)
}

/// All files by name: path and text of the one in effect.
fn files(source: &dyn Source) -> BTreeMap<String, (String, String)> {
    let mut files = BTreeMap::new();
    for folder in FOLDERS {
        for name in source.names(folder).unwrap_or_default() {
            let path = format!("{folder}/{name}");
            if !name.ends_with(".conf") || files.contains_key(&name) {
                continue;
            }
            // An unreadable file is skipped at boot too, and still masks others of its name.
            let text = source.text(&path).unwrap_or_default();
            files.insert(name, (path, text));
        }
    }
    files
}

/// The value a file sets a key to, if it differs from `value`.
fn other(text: &str, key: &str, value: &str) -> Option<String> {
    let found = text.lines().rev().find_map(|line| {
        let (name, set) = assignment(line)?;
        (name == key).then(|| words(set))
    })?;
    (found != words(value)).then_some(found)
}

/// Key (with slashes) and value of a line.
fn assignment(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.split_once('=')?;
    // A leading dash: errors are ignored.
    let name = name.trim().trim_start_matches('-');
    Some((normalized(name), value.trim()))
}

/// The separator that comes first is the separator; the other is part of a name (`net.ipv4.conf.eth0/100.rp_filter`).
fn normalized(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'.') => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn dotted(key: &str) -> String {
    key.chars()
        .map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect()
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use udpath_host::source::Folder;

    fn placed(files: &[(&str, &str)], wanted: &[(&str, &str)]) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        place(&Folder::captured(folder.path()), 7, wanted)
    }

    const RMEM: [(&str, &str); 1] = [("net/core/rmem_max", "4194304")];

    #[test]
    fn the_file_sorts_after_files_that_set_other_values() {
        for (path, text, name) in [
            ("etc/sysctl.d/10-a.conf", "net.core.rmem_max=1\n", "90-udpath-000007.conf"),
            ("etc/sysctl.d/99-sysctl.conf", "net.core.rmem_max=1\n", "99-udpath-000007.conf"),
            ("usr/lib/sysctl.d/99-a.conf", "-net/core/rmem_max = 1\n", "99-udpath-000007.conf"),
            ("run/sysctl.d/99-zz.conf", "net.core.rmem_max = 1\n", "zz-udpath-000007.conf"),
            // The same value, another key, a comment, a pattern: nothing to override.
            ("etc/sysctl.d/99-a.conf", "net.core.rmem_max = 4194304\n", "90-udpath-000007.conf"),
            (
                "etc/sysctl.d/99-a.conf",
                "net.core.wmem_max = 1\n#net.core.rmem_max=1\n",
                "90-udpath-000007.conf",
            ),
            ("etc/sysctl.d/99-a.conf", "net.core.*mem_max = 1\n", "90-udpath-000007.conf"),
            ("etc/sysctl.d/99-a.txt", "net.core.rmem_max=1\n", "90-udpath-000007.conf"),
            // Its last line wins.
            (
                "etc/sysctl.d/99-a.conf",
                "net.core.rmem_max=1\nnet.core.rmem_max=4194304\n",
                "90-udpath-000007.conf",
            ),
        ] {
            let (chosen, notes) = placed(&[(path, text)], &RMEM);
            assert_eq!(chosen, format!("/etc/sysctl.d/{name}"), "{path}: {text}");
            assert_eq!(notes.is_empty(), name.starts_with("90"), "{notes:?}");
        }
    }

    #[test]
    fn a_masking_file_is_the_only_one_read() {
        let theirs = ("usr/lib/sysctl.d/99-a.conf", "net.core.rmem_max=1\n");
        let (chosen, notes) = placed(&[theirs, ("etc/sysctl.d/99-a.conf", "")], &RMEM);
        assert_eq!((chosen.as_str(), notes.len()), ("/etc/sysctl.d/90-udpath-000007.conf", 0));
    }

    #[test]
    fn files_that_cannot_be_overridden_are_noted() {
        let (chosen, notes) = placed(&[("etc/sysctl.d/zzz.conf", "net.core.rmem_max=1\n")], &RMEM);
        assert_eq!(chosen, "/etc/sysctl.d/90-udpath-000007.conf");
        assert!(notes[0].contains("/etc/sysctl.d/zzz.conf sets net.core.rmem_max to 1"), "{notes:?}");
        assert!(notes[0].ends_with("remove the line there"), "{notes:?}");
        let (_, notes) = placed(&[("etc/sysctl.conf", "net.core.rmem_max=1\n")], &RMEM);
        assert!(notes[0].contains("`sysctl --system` reads that file last"), "{notes:?}");
    }

    #[test]
    fn names_are_read_as_systemd_does() {
        for (name, is) in [
            ("net.core.rmem_max", "net/core/rmem_max"),
            ("net/core/rmem_max", "net/core/rmem_max"),
            ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
            ("net/ipv4/conf/eth0.100/rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ] {
            assert_eq!(normalized(name), is);
            assert_eq!(normalized(&dotted(is)), is);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed(line in ".{0,60}") {
            let _ = assignment(&line);
        }
    }
}
