//! The pages of `docs/settings`: every setting has one, every page belongs to a setting, and the commands on them are
//! valid.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use udpath_tune::settings::rows;
use udpath_tune::{Setting, SettingRequest};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn pages() -> BTreeSet<String> {
    let names = fs::read_dir(docs().join("settings")).unwrap().flatten();
    names.map(|entry| entry.file_name().into_string().unwrap().trim_end_matches(".md").to_owned()).collect()
}

fn read(page: &str) -> String {
    fs::read_to_string(docs().join(format!("settings/{page}.md"))).unwrap()
}

/// The page of a setting.
fn page_of(setting: &Setting) -> Option<String> {
    // Files are never requested by name.
    Some(setting.row().page.to_owned()).filter(|page| !page.is_empty())
}

/// The page for a request's name; `*` and ports expand to settings.
fn page_of_request(name: &str) -> String {
    if let Some(item) = name.strip_prefix("port:").and_then(|rest| rest.split_once(':')).map(|(_, item)| item)
    {
        return if item == "threads" { "thread-affinity".into() } else { format!("socket-{item}") };
    }
    // A unit expands to its cgroup.
    let name = name.replace("policy:nsd.service", "policy:/system.slice/nsd.service");
    let setting: Setting = name.replace('*', "0").parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    page_of(&setting).unwrap_or_else(|| panic!("{name} cannot be asked for"))
}

/// The commands on a page: the words after each `--set`, on lines indented as code.
fn typed(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("    udpath "));
    let mut requests = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        assert!(["plan", "apply"].contains(&words[1]), "{line}");
        requests.extend(words.windows(2).filter(|pair| pair[0] == "--set").map(|pair| pair[1].to_owned()));
    }
    requests
}

#[test]
fn every_setting_has_a_page_and_every_page_a_setting() {
    let mut wanted: BTreeSet<String> = rows().map(|row| row.page.to_owned()).collect();
    let mut settings = vec![
        Setting::Irq(57),
        Setting::Sysctl("net/core/rmem_max".into()),
        Setting::Thread { pid: 1, tid: 1 },
        Setting::IrqbalanceBan,
    ];
    settings.extend(udpath_host::process::SocketSetting::ALL.map(|setting| Setting::Socket {
        pid: 1,
        inode: 1,
        setting,
    }));
    settings.push("policy:/system.slice/nsd.service/receive-buffer".parse().unwrap());
    settings.push("policy:nsd.service/spread".parse().unwrap());
    settings.push("unit:ntp.service/instances".parse().unwrap());
    wanted.extend(settings.iter().filter_map(page_of));
    assert_eq!(pages(), wanted);
    let index = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    for page in wanted {
        assert_eq!(index.matches(&format!("(settings/{page}.md)")).count(), 1, "{page} in the index");
    }
}

#[test]
fn commands_on_a_page_are_valid_and_match_its_setting() {
    for page in pages() {
        let requests = typed(&read(&page));
        let mut own = 0;
        for text in &requests {
            let request =
                SettingRequest::parse(text, "").unwrap_or_else(|error| panic!("{page}: {text}: {error}"));
            own += usize::from(page_of_request(&request.name) == page);
            // Requests about a port or a unit are resolved on the machine.
            if !request.name.starts_with("port:") && !request.name.starts_with("policy:nsd.service") {
                let setting: Setting = request.name.replace('*', "0").parse().unwrap();
                setting.value(&request.value).unwrap_or_else(|error| panic!("{page}: {text}: {error}"));
            }
        }
        assert!(own > 0, "{page} does not say how to set it: {requests:?}");
    }
}

#[test]
fn every_page_answers_the_same_questions_and_links_to_pages() {
    const QUESTIONS: [&str; 11] = [
        "What it is",
        "How ",
        "Helps",
        "Costs",
        "Harms",
        "Who changes it back",
        "Security",
        "Set",
        "Verify",
        "Undo",
        "Drivers",
    ];
    for page in pages() {
        let text = read(&page);
        assert!(text.starts_with(&format!("# {page}: ")), "{page}: its title");
        let mut at = 0;
        for question in QUESTIONS {
            // A table may replace the text about benefits and costs.
            let found = text[at..].find(&format!("**{question}"));
            match found {
                Some(found) => at += found,
                None => assert!(
                    page == "sysctl" && ["What it is", "Helps"].contains(&question),
                    "{page}: {question}"
                ),
            }
        }
        assert!(text[at..].contains("**Sources.** "), "{page}: sources");
        assert!((25..=60).contains(&text.lines().count()), "{page}: {} lines", text.lines().count());
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            assert!(docs().join("settings").join(link).is_file(), "{page} links to {link}");
        }
    }
}
