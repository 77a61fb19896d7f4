//! Results survive a round trip through a file, and everything else is rejected.

use udpath_report::{Document, Render, parse};

use crate::fixture;

#[test]
fn a_result_comes_back_as_it_went() {
    let (boost, load) = (fixture::boost(), fixture::load());
    assert_eq!(parse(boost.json().as_bytes(), "x").unwrap(), Document::Boost(boost));
    assert_eq!(parse(load.json().as_bytes(), "x").unwrap(), Document::Load(load));
    let profiled = fixture::profiled_boost();
    assert_eq!(parse(profiled.json().as_bytes(), "x").unwrap(), Document::Boost(profiled));
    let profile = fixture::profile();
    assert_eq!(parse(profile.json().as_bytes(), "x").unwrap(), Document::Profile(profile));
}

/// Both came back as a neighbour of theirs, by the reader that is faster and only nearly right.
#[test]
fn a_figure_comes_back_to_the_last_digit() {
    let mut load = fixture::load();
    for figure in [2.265_405_337_195_160_6, 1.665_766_001_518_861_3] {
        load.tps = figure;
        let Document::Load(again) = parse(load.json().as_bytes(), "x").unwrap() else { panic!("a load") };
        assert_eq!(again.tps.to_bits(), figure.to_bits(), "{figure}");
    }
}

#[test]
fn the_fixtures_are_consistent() {
    for rung in fixture::boost().rungs {
        rung.counts.check().unwrap();
        let Some(latency) = rung.latency else { continue };
        assert_eq!(latency.histogram.iter().map(|(_, n)| n).sum::<u64>(), latency.count, "{}", rung.name);
    }
    fixture::load().counts.check().unwrap();
}

#[test]
fn a_file_cut_anywhere_is_refused_as_cut() {
    let whole = fixture::LOAD.trim_end();
    for share in 1..20 {
        let cut = &whole[..whole.len() * share / 20];
        let error = parse(cut.as_bytes(), "cut.json").expect_err("half a result").to_string();
        assert!(error.starts_with("cut.json is truncated at line 1"), "{error}");
    }
}

#[test]
fn a_wrong_field_is_named_with_its_place() {
    let wrong = fixture::BOOST.replacen("\"verdict\":\"better\"", "\"verdict\":\"great\"", 1);
    let error = parse(wrong.as_bytes(), "x.json").unwrap_err().to_string();
    assert!(
        error.starts_with("x.json does not match its schema udpath.boost/2: unknown variant `great`"),
        "{error}"
    );
    assert!(error.contains("line 1 column"), "{error}");
    let missing = fixture::BOOST.replacen("\"best\":\"batch\",", "", 1);
    let error = parse(missing.as_bytes(), "x.json").unwrap_err().to_string();
    assert!(error.contains("missing field `best`"), "{error}");
}
