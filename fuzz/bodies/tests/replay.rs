//! Every body with every seed, with random bytes, and with damaged seeds.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use udpath_fuzz_bodies::BODIES;

fn fuzz(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = fuzz("seeds").join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_body_has_a_target_and_seeds_and_the_other_way_round() {
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    for (name, _) in BODIES {
        let target = fs::read_to_string(fuzz("fuzz_targets").join(name).with_extension("rs")).unwrap();
        assert!(target.contains(&format!("udpath_fuzz_bodies::{name}(data)")), "{target}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
        assert!(!seeds(name).is_empty(), "{name}");
    }
    for folder in ["fuzz_targets", "seeds"] {
        assert_eq!(fs::read_dir(fuzz(folder)).unwrap().count(), BODIES.len(), "{folder}");
    }
}

#[test]
fn seeds_hold() {
    for (name, body) in BODIES {
        for seed in seeds(name) {
            body(&seed);
            // Truncated at any offset; long files at a thousand offsets.
            for cut in (0..seed.len()).step_by((seed.len() / 1000).max(1)) {
                body(&seed[..cut]);
            }
        }
    }
}

/// Runs `cases` of `inputs`. Writes no files: failures are printed.
fn all(cases: u32, inputs: &impl Strategy<Value = Vec<u8>>, body: fn(&[u8])) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(inputs, |data| {
        body(&data);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn random_bytes_hold() {
    for (_, body) in BODIES {
        all(2000, &prop::collection::vec(any::<u8>(), 0..2000), body);
    }
}

#[test]
fn random_text_of_the_right_letters_holds() {
    let letters =
        |of: &'static str| prop::collection::vec(prop::sample::select(of.as_bytes().to_vec()), 0..60);
    for (name, body) in BODIES {
        match name {
            "cpu_set" => all(5000, &letters("0123456789abcf,-:/ \n"), body),
            "cpu_times" => all(5000, &letters("cpu0123456789 \n\0"), body),
            "tables_json" => all(2000, &letters("{}[]\",:0123456789.eE-+nulltrue\\"), body),
            "report_json" => all(2000, &letters("{}[]\",:0123456789.eE-+nulltrue\\"), body),
            _ => {}
        }
    }
}

#[test]
fn damaged_seeds_hold() {
    for (name, body) in BODIES {
        let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
        let inputs = (prop::sample::select(seeds(name)), damage).prop_map(|(mut seed, damage)| {
            for (at, byte) in damage {
                if !seed.is_empty() {
                    let at = at.index(seed.len());
                    seed[at] = byte;
                }
            }
            seed
        });
        all(1000, &inputs, body);
    }
}
