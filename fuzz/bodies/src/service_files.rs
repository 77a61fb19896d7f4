//! Configuration files of known servers.

use udpath_tune::services::{Profile, Service};

use crate::presentable;

/// CPUs that the guides' values are for.
const CPUS: usize = 4;

/// A configuration file; the first byte selects the server. What is proposed for it, alone and together, makes a text
/// for which it is not proposed any more.
pub fn service_files(data: &[u8]) {
    let Some((which, text)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let names = Profile::names();
    let profile = Profile::named(names[usize::from(*which) % names.len()]).expect("a name of the list");
    let service = Service::of_text(profile, text);
    let proposals = service.proposals(CPUS, Some("eth0"));
    for proposal in &proposals {
        changed(&service, std::slice::from_ref(proposal));
    }
    if proposals.len() > 1 {
        changed(&service, &proposals);
    }
    // A value of the user's choice is set or refused.
    for knob in service.knobs() {
        if let Err(error) = service.propose(knob.name, text.lines().next().unwrap_or_default()) {
            presentable(&error, data.len());
        }
    }
}

/// The proposals' text asks for them no more.
fn changed(service: &Service, proposals: &[udpath_tune::services::Proposal]) {
    let changes = match service.files(proposals) {
        Ok(changes) => changes,
        Err(error) => return presentable(&error, 4096),
    };
    let [change] = changes.as_slice() else { panic!("one file became {}", changes.len()) };
    // At the end of a text that stops in the middle of a statement, new lines are a part of that: no server runs with
    // it.
    if change.old.as_ref().is_some_and(|old| change.new.starts_with(old.as_str())) {
        return;
    }
    let again = Service::of_text(service.profile, &change.new);
    for proposal in proposals {
        let id = proposal.id();
        let still = again.proposals(CPUS, Some("eth0")).iter().any(|other| other.id() == id);
        assert!(!still, "{id} is proposed again for {:?}", change.new);
    }
}
