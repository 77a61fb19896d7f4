//! A real machine: its recording, reduced to what its profile needs, is stored and reads as it did. The test
//! `profile::recording` of the whole program makes another one.

use super::sound;
use crate::rings::recorded::{profile, summary};

/// From a virtual machine with two CPUs: see `tests/rings/real/README.md`.
#[test]
fn a_recording_of_a_real_machine_reads_as_ever() {
    let _turn = udpath_rig::together();
    let profile = profile(include_bytes!("../../rings/real/ring"), include_str!("../../rings/real/kallsyms"));
    sound(&profile);
    assert_eq!(summary(&profile), include_str!("../../rings/real/expected"));
}
