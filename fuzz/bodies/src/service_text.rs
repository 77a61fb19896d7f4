//! Short texts that decide with whose rights, and with whose consent, a server is changed.

use std::cmp::Ordering;

use udpath_tune::services::{Credentials, version_order};

/// `/proc/PID/status`, and versions of packages: a process of root alone has root's rights; versions have one order.
pub fn service_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    rights(&text);
    let versions: Vec<&str> = text.lines().take(3).collect();
    if let [one, two, three] = versions[..] {
        for (first, second) in [(one, two), (two, three), (one, three)] {
            assert_eq!(
                version_order(first, second),
                version_order(second, first).reverse(),
                "{first:?} {second:?}"
            );
            assert_eq!(version_order(first, first), Ordering::Equal, "{first:?}");
        }
        let (first, second) = (version_order(one, two), version_order(two, three));
        if first == second || second == Ordering::Equal {
            assert_eq!(version_order(one, three), first, "{one:?} {two:?} {three:?}");
        }
    }
}

/// Whose rights a text gives, by another reading of it.
fn rights(text: &str) {
    let Some(found) = Credentials::parse(text) else { return };
    let line = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a process without this line has no rights");
        line[name.len()..]
            .split_whitespace()
            .map(|id| id.parse::<u32>().expect("a number"))
            .collect::<Vec<_>>()
    };
    let users = line("Uid:");
    assert_eq!(found.is_root(), users.iter().all(|user| *user == 0), "{users:?}");
    assert!(!users.is_empty() && !line("Gid:").is_empty(), "{users:?}");
    let _groups = line("Groups:");
}
