use super::*;

#[test]
fn every_profile_is_read_and_what_it_proposes_can_be_set() {
    assert_eq!(PROFILES.len(), 10);
    for profile in PROFILES.iter() {
        for executable in &profile.executables {
            assert!(std::ptr::eq(Profile::of(executable).unwrap(), profile));
        }
        let absolute = |place: &String| place.starts_with("/etc/") && place.len() > "/etc/".len();
        assert!(
            !profile.places.is_empty()
                && profile
                    .places
                    .iter()
                    .all(|place| { absolute(place) || place.starts_with("/usr/local/etc/") })
        );
        let instances = &profile.instances;
        let given = instances.append.len() + instances.options.len() + instances.differs.len();
        let own = instances.set.len() + given;
        assert_eq!(instances.shared_state.is_some(), own == 0, "{}", profile.name);
        for knob in &profile.knobs {
            let Some(value) = &knob.propose else { continue };
            assert!(
                ["cpus", "interface"].contains(&value.as_str()) || knob.kind.accepts(value, profile.numbers),
                "{}: {}",
                profile.name,
                knob.name
            );
            assert!(!knob.effect.is_empty() && !knob.risk.is_empty(), "{}: {}", profile.name, knob.name);
        }
    }
}

#[test]
fn interfaces_with_and_without_port() {
    for good in ["eth0", "enp1s0f0np0", "eth0.5@53", "a-b_c@65535"] {
        assert!(Kind::Interface.accepts(good, Numbers::default()), "{good}");
    }
    for bad in
        ["", "@53", "eth0@", "eth0@0", "eth0@65536", "eth0@5 3", "eth0:1", "eth0\n", "..", "sixteen-letters0"]
    {
        assert!(!Kind::Interface.accepts(bad, Numbers::default()), "{bad}");
    }
}
