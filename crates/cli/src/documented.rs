//! Checks that the program accepts every `udpath` command line in the docs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::args::Cli;

/// A command line of a page.
struct Shown {
    page: PathBuf,
    line: usize,
    /// Its words, without `udpath`.
    words: Vec<String>,
    /// In running text, where arguments may be left out.
    in_prose: bool,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files in a folder and, if `below` is set, in its subfolders.
fn pages(folder: &Path, below: bool, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && below {
            pages(&path, below, into);
        } else if path.extension().is_some_and(|extension| extension == "md")
            && path.file_name().is_some_and(|name| name != "CHANGELOG.md")
        {
            into.push(path);
        }
    }
}

/// Splits text into words like a shell: quotes keep spaces, an unquoted `#` starts a comment.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for character in text.chars().chain([' ']) {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ') if word.is_empty() => {}
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (None, '#') if word.is_empty() => break,
            (None, _) => word.push(character),
        }
    }
    words
}

/// The udpath commands in a shell line, including those after `--`, `|` and `&&`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    // Words belong to all commands from this one on: a command after `--` is also an argument of the one before it.
    let mut open = 0;
    let mut start = true;
    for word in words(text) {
        let ends = ["|", "&&", "||", "&", ";"].contains(&word.as_str());
        if ends || word.starts_with('>') || word.starts_with("2>") {
            open = found.len();
        } else {
            for command in &mut found[open..] {
                command.push(word.clone());
            }
            if start && (word == "udpath" || word.ends_with("/udpath")) {
                found.push(Vec::new());
            }
        }
        start = ends || word == "--";
    }
    found
}

fn shown() -> Vec<Shown> {
    let mut files = Vec::new();
    pages(&repository(), false, &mut files);
    pages(&repository().join("docs"), true, &mut files);
    pages(&repository().join("deploy"), true, &mut files);
    let mut all = Vec::new();
    for page in files {
        let text = fs::read_to_string(&page).unwrap();
        let (mut fenced, mut marker) = (false, false);
        for (line, text) in (1..).zip(text.lines()) {
            if text.starts_with("```") {
                fenced = !fenced;
                continue;
            }
            let mut add = |text: &str, in_prose| {
                for words in commands(text) {
                    all.push(Shown { page: page.clone(), line, words, in_prose });
                }
            };
            if text.starts_with("<!-- transcript ") {
                marker = true;
                add(text.split_once(": ").map_or("", |(_, command)| command).trim_end_matches("-->"), false);
            } else if marker && text.starts_with("udpath ") {
                add(text, false);
            } else if fenced {
                // Only typed commands: output may mention commands too.
                add(text.strip_prefix("$ ").unwrap_or_default(), false);
            } else if let Some(code) = text.strip_prefix("    ") {
                add(code.trim_start(), false);
            } else {
                for span in text.split('`').skip(1).step_by(2) {
                    add(span, true);
                }
            }
            marker &= !text.ends_with("-->");
        }
    }
    all
}

/// The error with which the program would reject a command line.
fn refusal(words: &[String], in_prose: bool) -> Option<String> {
    // A placeholder word, such as ID, PORT or `...`.
    let placeholder = words.iter().any(|word| {
        word.contains("...") || word.chars().all(|c| c.is_ascii_uppercase()) || word.starts_with(['[', '$'])
    });
    let line = ["udpath"].into_iter().chain(words.iter().map(String::as_str));
    match Cli::command().try_get_matches_from(line) {
        Ok(matches) => {
            let (verb, matches) = matches.subcommand()?;
            // Any word is accepted as a file name.
            let plan = matches.try_get_raw("file").ok().flatten()?.next()?.to_str()?;
            let fits = plan == "-" || plan.ends_with(".json") || placeholder;
            (["plan", "apply"].contains(&verb) && !fits).then(|| format!("'{plan}' is not a plan"))
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
            // Without a value, clap reports InvalidValue: as in "see --capture".
            ErrorKind::InvalidValue
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                if in_prose =>
            {
                None
            }
            ErrorKind::ValueValidation | ErrorKind::InvalidValue if placeholder => None,
            _ => Some(error.to_string()),
        },
    }
}

#[test]
fn every_command_in_the_docs_is_accepted() {
    let shown = shown();
    assert!(shown.len() > 150, "only {} commands found in the docs", shown.len());
    let refused: Vec<String> = shown
        .iter()
        .filter_map(|one| {
            let why = refusal(&one.words, one.in_prose)?;
            let page = one.page.strip_prefix(repository()).unwrap_or(&one.page).display();
            Some(format!("{page}:{}: udpath {}\n{why}", one.line, one.words.join(" ")))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn commands_that_do_not_exist_are_refused() {
    for line in [
        "udpath nonesuch",
        "udpath plan xps",
        "udpath show --nonesuch",
        "udpath load echo 10.0.0.2:7 --rate often",
        "make && udpath profile --rate",
        "udpath lab exec try/server -- udpath serve nonesuch --bind 0.0.0.0:7",
    ] {
        let found = commands(line);
        assert!(found.iter().any(|words| refusal(words, false).is_some()), "{line}: {found:?}");
    }
}
