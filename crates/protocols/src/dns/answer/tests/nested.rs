//! Zones within each other, and aliases out of them.

use super::*;

/// A loaded zone below another one: its names are its own, and DS records at its apex are those of the zone above.
#[test]
fn nested_zones_answer_for_themselves() {
    let upper = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nsub NS ns.sub\nsub DS 1 8 9 00ff\nns.sub A 192.0.2.1\nold.sub A 192.0.2.2\n\
                 cut NS ns.far.away.\n";
    let lower = "$ORIGIN sub.x.\n@ 2 SOA . . 2 2 2 2 2\n@ NS ns\nns A 192.0.2.3\n";
    let below_cut = "$ORIGIN deep.down.cut.x.\n@ 3 SOA . . 3 3 3 3 3\na A 192.0.2.4\n";
    let index = index(&[upper, lower, below_cut]);
    assert_eq!(ask(&index, "ns.sub.x", rtype::A), "noerror aa\nanswer: ns.sub.x 2 a 192.0.2.3");
    assert_eq!(ask(&index, "old.sub.x", rtype::A), "nxdomain aa\nauthority: sub.x 2 soa . . 2 2 2 2 2");
    assert_eq!(ask(&index, "sub.x", rtype::DS), "noerror aa\nanswer: sub.x 1 ds 1 8 9 00ff");
    assert_eq!(
        ask(&index, "a.deep.down.cut.x", rtype::A),
        "noerror aa\nanswer: a.deep.down.cut.x 3 a 192.0.2.4"
    );
    assert_eq!(
        ask(&index, "b.deep.down.cut.x", rtype::A),
        "nxdomain aa\nauthority: deep.down.cut.x 3 soa . . 3 3 3 3 3"
    );
    assert_eq!(ask(&index, "down.cut.x", rtype::A), "noerror\nauthority: cut.x 1 ns ns.far.away.");
}

/// A loaded zone makes no names of the zone above, nor hides those that stand above it: `b.x` is a name of the second
/// only.
#[test]
fn a_nested_zone_leaves_the_tree_above_as_it_is() {
    let nested = "$ORIGIN a.b.x.\n@ 2 SOA . . 2 2 2 2 2\nhere A 192.0.2.1\nds CNAME a.b.x.\n";
    let ask_in = |text: &str, name: &str, qtype: u16| {
        let zone = format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n{text}");
        ask(&index(&[&zone, nested]), name, qtype)
    };
    let (no, empty) =
        ("nxdomain aa\nauthority: x 1 soa . . 1 1 1 1 1", "noerror aa\nauthority: x 1 soa . . 1 1 1 1 1");
    for (text, name, qtype, expected) in [
        ("", "b.x", rtype::A, no),
        ("* A 192.0.2.9\n", "b.x", rtype::A, "noerror aa\nanswer: b.x 1 a 192.0.2.9"),
        ("* A 192.0.2.9\n", "c.b.x", rtype::A, "noerror aa\nanswer: c.b.x 1 a 192.0.2.9"),
        ("* A 192.0.2.9\n", "no.a.b.x", rtype::A, "nxdomain aa\nauthority: a.b.x 2 soa . . 2 2 2 2 2"),
        // The delegation, and what is below it, are names of the zone above.
        ("* A 192.0.2.9\na.b NS ns.y.\n", "b.x", rtype::A, empty),
        ("* A 192.0.2.9\nold.a.b A 192.0.2.8\n", "c.b.x", rtype::A, no),
        // DS records of the apex, of all that the zone above may have there.
        ("", "a.b.x", rtype::DS, no),
        ("b A 192.0.2.9\n", "a.b.x", rtype::DS, no),
        ("old.a.b A 192.0.2.8\n", "a.b.x", rtype::DS, empty),
        ("a.b A 192.0.2.8\n", "a.b.x", rtype::DS, empty),
        ("* DS 1 8 9 00\n", "a.b.x", rtype::DS, "noerror aa\nanswer: a.b.x 1 ds 1 8 9 00"),
        ("* A 192.0.2.9\n", "a.b.x", rtype::DS, empty),
        ("a.b CNAME y.\n", "a.b.x", rtype::DS, "noerror aa\nanswer: a.b.x 1 cname y."),
        ("b NS ns.y.\na.b DS 1 8 9 00\n", "a.b.x", rtype::DS, "noerror\nauthority: b.x 1 ns ns.y."),
        (
            "b DNAME y.\n",
            "a.b.x",
            rtype::DS,
            "noerror aa\nanswer: b.x 1 dname y.\nanswer: a.b.x 1 cname a.y.",
        ),
        // At the end of an alias as well.
        (
            "",
            "ds.a.b.x",
            rtype::DS,
            "nxdomain aa\nanswer: ds.a.b.x 2 cname a.b.x.\nauthority: x 1 soa . . 1 1 1 1 1",
        ),
        (
            "a.b DS 1 8 9 00\n",
            "ds.a.b.x",
            rtype::DS,
            "noerror aa\nanswer: ds.a.b.x 2 cname a.b.x.\nanswer: a.b.x 1 ds 1 8 9 00",
        ),
        // The zone above has glue for its own delegations only.
        ("c NS here.a.b\n", "c.x", rtype::A, "noerror\nauthority: c.x 1 ns here.a.b.x."),
        (
            "c NS here.a.b\nhere.a.b A 192.0.2.7\n",
            "c.x",
            rtype::A,
            "noerror\nauthority: c.x 1 ns here.a.b.x.\nadditional: here.a.b.x 1 a 192.0.2.7",
        ),
    ] {
        assert_eq!(ask_in(text, name, qtype), expected, "{name} {qtype} with\n{text}");
    }
}

/// As NSD and Knot answer: an alias is no DNAME record though its target has one, a delegation's DS records are the
/// zone's, also at the end of an alias, and a wildcard stands for a server's name without addresses of its own.
#[test]
fn aliases_of_delegations_and_wildcards_as_glue() {
    let ds = "0000000000000000000000000000000000000000000000000000000000000000";
    let zone = format!(
        "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\ntree DNAME y.\nto CNAME tree\ncut NS ns.servers\ncut DS 1 8 2 {ds}\n\
         plain NS ns.servers\nds CNAME cut\nnone CNAME plain\n*.servers A 192.0.2.9\n"
    );
    let index = index(&[&zone]);
    assert!(ask(&index, "below.to.x", rtype::A).starts_with("nxdomain aa\nauthority: x 1 soa"));
    assert_eq!(
        ask(&index, "to.x", rtype::DNAME),
        "noerror aa\nanswer: to.x 1 cname tree.x.\nanswer: tree.x 1 dname y."
    );
    assert_eq!(
        ask(&index, "ds.x", rtype::DS),
        format!("noerror aa\nanswer: ds.x 1 cname cut.x.\nanswer: cut.x 1 ds 1 8 2 {ds}")
    );
    assert!(
        ask(&index, "none.x", rtype::DS)
            .starts_with("noerror aa\nanswer: none.x 1 cname plain.x.\nauthority: x 1 soa")
    );
    assert_eq!(ask(&index, "ds.x", rtype::A), "noerror aa\nanswer: ds.x 1 cname cut.x.");
    assert_eq!(
        ask(&index, "a.cut.x", rtype::A),
        "noerror\nauthority: cut.x 1 ns ns.servers.x.\nadditional: ns.servers.x 1 a 192.0.2.9"
    );
}
