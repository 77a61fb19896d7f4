//! Files of units: assignments in sections, systemd.syntax(7).

use udpath_host::UnitName;

/// The path of udpath's drop-in of a unit.
pub(crate) fn drop_in(unit: &UnitName) -> String {
    format!("/etc/systemd/system/{unit}.d/udpath-instances.conf")
}

/// An assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// The assignments of a file, in order. A line that ends with a backslash goes on in the next one that is not a
/// comment.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let (mut found, mut section, mut whole) = (Vec::new(), String::new(), String::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(begin) = line.strip_suffix('\\') {
            whole.push_str(begin);
            whole.push(' ');
            continue;
        }
        whole.push_str(line);
        let line = std::mem::take(&mut whole);
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            found.push(Line { section: section.clone(), key, value });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_comments_skipped() {
        let text = "# a\n[Unit]\nDescription = x=y \n\n[Service]\nExecStart=/bin/a \\\n; b\n  -c \\\n-d\n;e=f\nnonsense\nUser=\n";
        let found: Vec<_> = lines(text)
            .into_iter()
            .map(|line| format!("{}.{}={}", line.section, line.key, line.value))
            .collect();
        assert_eq!(found, ["Unit.Description=x=y", "Service.ExecStart=/bin/a  -c  -d", "Service.User="]);
    }
}
