//! Users files, compared with what FreeRADIUS 3.2.1 makes of them.

use super::*;

#[test]
fn a_file_of_freeradius_is_read() {
    let text = b"# users\n\nbob\tCleartext-Password := \"hello\"\n\tReply-Message := \"Hello, bob\",\n\
        \tSession-Timeout = 3600, Idle-Timeout = 60\n\n\"carol smith\" Cleartext-Password := \"h\\\"i\", \
        One-Time-Code := 123456\n        Class += 0x01\nmallory Auth-Type := Reject # out\n";
    let users = Users::parse(text).unwrap();
    let names: Vec<_> = users.all().iter().map(|user| &*user.name).collect();
    assert_eq!(names, [&b"bob"[..], b"carol smith", b"mallory"]);
    let bob = users.find(b"bob").unwrap();
    assert_eq!((&*bob.password, bob.verdict == Verdict::Accept), (&b"hello"[..], true));
    assert_eq!(*bob.attributes, *b"\x12\x0cHello, bob\x1b\x06\x00\x00\x0e\x10\x1c\x06\x00\x00\x00\x3c");
    let carol = users.find(b"carol smith").unwrap();
    assert_eq!(*carol.password, *b"h\"i");
    assert!(
        carol.verdict == Verdict::Challenge { code: (*b"123456").into() } && *carol.attributes == [25, 3, 1]
    );
    assert!(users.find(b"mallory").unwrap().verdict == Verdict::Reject);
    assert!(users.find(b"Bob").is_none() && users.find(b"").is_none());
    assert!(!format!("{users:?}").contains("hello"));
    assert_eq!(Users::parse(b"").unwrap().all(), []);
}

/// Quotes, escapes and expansions of a file that FreeRADIUS 3 reads; what it expands is not sent as it stands.
#[test]
fn quotes_are_freeradius_s() {
    let first = Users::parse(b"a Cleartext-Password := \"p\", Cleartext-Password := \"q\"\n").unwrap();
    let first = first.find(b"a").unwrap();
    assert_eq!(*first.password, *b"p", "as FreeRADIUS has it");
    let text = b"a Cleartext-Password := 'it\\'s %{User-Name}'\n\tReply-Message := 'goodbye'\n\
        b Cleartext-Password := \"x\"\n\tReply-Message = \"all\\tdone\"\n";
    let users = Users::parse(text).unwrap();
    assert_eq!(*users.find(b"a").unwrap().password, *b"it's %{User-Name}");
    assert_eq!(*users.find(b"a").unwrap().attributes, *b"\x12\x09goodbye");
    assert_eq!(*users.find(b"b").unwrap().attributes, *b"\x12\x0aall\tdone");
    for (text, reason) in [
        (
            "a Cleartext-Password := x\n Reply-Message := \"Hello, %{User-Name}\"",
            "line 2: Reply-Message :=: what follows a %",
        ),
        ("a Cleartext-Password := \"%u\"", "line 1: Cleartext-Password :=: what follows a %"),
        (
            "a Cleartext-Password := x\n Reply-Message := `/bin/date`",
            "line 2: Reply-Message :=: programs are not run",
        ),
        (
            "a Cleartext-Password := \"\\d\"",
            "line 1: Cleartext-Password: \\d is no escape: a backslash is written \\\\",
        ),
    ] {
        let error = Users::parse(text.as_bytes()).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
}

/// Compared with FreeRADIUS 3.2.1, as those of [`items`].
#[test]
fn values_without_quotes_are_freeradius_s() {
    let text = b"a#b cleartext-password := hel#lo\n\treply-message = a\\nb,\n# more\n\n\tFILTER-ID = DOM\\user # x\n\
        m auth-type := reject\n \nc Cleartext-Password:=x, # the end\n\n\tClass = 'gold'\r\n";
    let users = Users::parse(text).unwrap();
    let user = users.find(b"a#b").unwrap();
    assert_eq!(*user.password, *b"hel");
    assert_eq!(*user.attributes, *b"\x12\x05a\nb\x0b\x0aDOM\\user");
    assert!(users.find(b"m").unwrap().verdict == Verdict::Reject);
    assert_eq!(*users.find(b"c").unwrap().attributes, *b"\x19\x06gold");
}

/// A file as FreeRADIUS comes with: all lines that do not fit are listed at once, and the users that fit can be used.
#[test]
fn all_misfits_are_listed_and_may_be_left_out() {
    let text = b"bob\tCleartext-Password := \"hello\"\n\tReply-Message := \"Hello, %{User-Name}\"\n\
        doug  Cleartext-Password := \"goodbye\"\n      Reply-Message := 'goodbye', Fall-Through = Yes\n\
        doug\n      Filter-Id = \"std.ppp\"\n\"John Doe\"\tCleartext-Password := \"hello\"\n\
        lameuser\tAuth-Type := Reject\n\tReply-Message = \"Your account has been disabled.\"\n\
        steve\tService-Type == Framed-User, Cleartext-Password := \"testing\"\n\tService-Type = Framed-User,\n\
        \tFramed-IP-Address = 172.16.3.33+,\nold\tCleartext-Password == \"x\"\nmac\tCrypt-Password := \"$1$abc$\"\n\
        DEFAULT\tFramed-Protocol == PPP\n\tFramed-Protocol = PPP\nann Cleartext-Password := y\nno-one\n";
    let (users, misfits) = Users::from_lines(text);
    let names: Vec<_> = users.all().iter().map(|user| &*user.name).collect();
    assert_eq!(names, [&b"John Doe"[..], b"ann"]);
    let lines: Vec<String> = Users::parse(text)
        .unwrap_err()
        .split("; ")
        .filter(|part| part.starts_with("line "))
        .map(|part| part.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(lines, [2, 4, 5, 8, 10, 12, 13, 14, 15, 18].map(|line| format!("line {line}")));
    let hint = misfits.hint(users.count(), "users").unwrap();
    assert!(hint.starts_with("10 lines left out, 2 users used: line 2: "), "{hint}");
}

#[test]
fn wrong_lines_are_named() {
    let long = format!("{} Cleartext-Password := x", "n".repeat(254));
    let many = format!("bob Cleartext-Password := x\n{}", "\tClass = aaaaaaaaaaaaaaaa,\n".repeat(200));
    for (text, reason) in [
        (" Class = 1", "line 1: attributes before the first user: begin a user's line with the name"),
        ("\nbob", "line 2: user bob has no password: expected Cleartext-Password := \"...\""),
        ("bob\n\nalice Cleartext-Password := x", "line 1: user bob has no password"),
        ("bob Cleartext-Password == x", "line 1: Cleartext-Password ==: expected :="),
        ("bob Cleartext-Password := \"\"", "line 1: Cleartext-Password must have 1 to 128 bytes"),
        (
            "bob User-Password := x",
            "line 1: cannot check User-Password: only the password is checked: expected Cleartext-Password",
        ),
        ("bob Cleartext-Password :=", "line 1: Cleartext-Password :=: the line ends: expected a value"),
        ("bob Cleartext-Password", "line 1: expected := after Cleartext-Password, but the line ends"),
        ("bob := x", "line 1: expected NAME := VALUE, but found `:=`"),
        ("bob Cleartext-Password := x y", "line 1: expected a comma before `y`"),
        (
            "bob Cleartext-Password := x, NAS-IP-Address == 10.0.0.1",
            "line 1: cannot check NAS-IP-Address: only the password is checked",
        ),
        ("$INCLUDE more", "line 1: $INCLUDE is not supported: put all users into one file"),
        ("bob Cleartext-Password := x,", "line 1: a comma behind the last check item: remove it"),
        ("b Cleartext-Password := x\n Class = a,", "line 2: a comma behind the last attribute: remove it"),
        (
            "b Cleartext-Password := x\n Class = a,\n\nc Cleartext-Password := y",
            "line 2: a comma behind the last",
        ),
        (
            "b Cleartext-Password := x\n Class = a\n\n Class = b",
            "line 4: the attributes end on line 2: write a comma",
        ),
        ("b Cleartext-Password := x\n Class = a, # a\n Class = b", "line 3: the attributes end on line 2"),
        (
            "b Cleartext-Password := x\n Reply-Message = %{User-Name}",
            "line 2: Reply-Message =: %{...} would be",
        ),
        ("bob Auth-Type := Accept", "line 1: Auth-Type Accept: expected Reject"),
        ("DEFAULT Auth-Type := Reject", "line 1: DEFAULT is not supported"),
        (
            "m Auth-Type := Reject\n Class = 1",
            "line 1: user m is always rejected: remove the rest of the entry",
        ),
        ("m Auth-Type := Reject, Cleartext-Password := x", "line 1: user m is always rejected"),
        ("b Cleartext-Password := x\nb Cleartext-Password := y", "line 2: user b is already in the file"),
        ("b Cleartext-Password := x\n Colour = 1", "line 2: unknown attribute Colour"),
        ("b Cleartext-Password := x\n Class == 1", "line 2: Class ==: expected =, := or +="),
        (&long, "line 1: a user's name has 254 bytes: expected 1 to 253"),
        (&many, "line 115: more than 2048 bytes of attributes for one user"),
    ] {
        let error = Users::parse(text.as_bytes()).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
}
