//! `--state`: folders that are no journal, and journals that others could write.

use std::fs;
use std::path::Path;

use super::Scene;

/// An entry that is in effect, as the program writes it: what it has changed is `intent`, a line's JSON.
fn entry(id: u64, setting: &str, old: Option<&str>, new: Option<&str>) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::metadata("/proc/self/ns/net").unwrap();
    let (device, inode) =
        (std::os::unix::fs::MetadataExt::dev(&namespace), std::os::unix::fs::MetadataExt::ino(&namespace));
    let lines = [
        serde_json::json!({"begun": {
            "schema": "udpath.journal/1", "id": id, "time": 1, "user": "root", "version": "0.1.0", "boot": boot.trim(),
            "namespace": {"device": device, "inode": inode}, "confirm": null,
        }}),
        serde_json::json!({"intent": {
            "setting": setting, "identity": null, "old": old, "new": new, "reason": "",
        }}),
        serde_json::json!({"done": {"at": 0, "found": new}}),
        serde_json::json!({"applied": {"time": 2}}),
    ];
    let mut chain = 0xcbf2_9ce4_8422_2325_u64;
    let mut text = String::new();
    for line in lines {
        let json = line.to_string();
        chain = json.bytes().fold(chain, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        text.push_str(&format!("{chain:016x} {json}\n"));
    }
    text
}

#[test]
fn a_folder_that_is_no_journal_is_not_changed() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    scene
        .shell(
            "cd $D/root; mkdir -m 755 etc; echo x > etc/passwd; chmod 644 etc/passwd; echo x > etc/shadow; chmod 640 etc/shadow
             mkdir -m 700 etc/ssl; ln -s etc link; mkdir -m 755 here; ln -s ../etc here/up; echo x > file; mkfifo fifo
             mkdir -m 755 apt; touch apt/lock; chmod 640 apt/lock; mkdir -m 700 apt/partial
             mkdir -m 755 pipe; mkfifo pipe/lock; mkdir -m 700 text; echo some text > text/lock
             $A sh -c 'mkdir -m 700 $D/theirs; ln -s $D/root/etc $D/link; mkdir -m 777 $D/open'",
        )
        .fine();
    let before = scene.look();
    // Its value already: nothing would be written, even if it were accepted.
    let plan = "sysctl:net.ipv4.ip_default_ttl=64";
    for (folder, part) in [
        ("root/etc", "is not a journal: it contains"),
        ("root/link", "is not a journal: it is a symbolic link"),
        ("root/link/", "is not a journal: it is a symbolic link"),
        ("root/here/up", "is not a journal: it is a symbolic link"),
        ("root/apt", "is not a journal: it contains partial"),
        ("root/pipe", "its file lock cannot be used: it is a FIFO"),
        ("root/text", "its file lock is not a journal's"),
        ("root/file", "ot a directory"),
        ("root/fifo", "ot a directory"),
        ("theirs", "belongs to user 65534"),
        ("theirs/below", "belongs to user 65534"),
        ("open", "belongs to user 65534"),
        // A folder of everybody's, such as /tmp.
        ("", "is not a journal: "),
        ("link", "is a symbolic link of user 65534"),
        ("link/below", "is a symbolic link of user 65534"),
    ] {
        for verb in [
            &["undo"][..],
            &["undo", "1"],
            &["undo", "1", "--print"],
            &["undo", "1", "--forget", "--force"],
            &["confirm"],
            &["confirm", "1"],
            &["status"],
            &["apply", "--set", plan],
            &["revert", "1"],
        ] {
            // There is nothing below these, which is no error of a verb that only reads.
            let said = scene.run(&[verb, &["--state", &scene.at(folder)]].concat());
            let creates = verb[0] == "apply";
            if folder.ends_with("theirs/below") && !creates {
                continue;
            }
            assert!(matches!(said.code, Some(2 | 3)), "{verb:?} {folder}: {:?} {}", said.code, said.err);
            assert!(
                said.err.contains(part) && said.err.lines().count() == 1,
                "{verb:?} {folder}: {}",
                said.err
            );
            // Who did that to /tmp would lock everybody out.
            assert!(!said.err.contains("chmod"), "{verb:?} {folder}: {}", said.err);
            assert_eq!(scene.look(), before, "{verb:?} {folder}");
        }
    }
    // Nothing is created to find that there is nothing.
    scene.run(&["undo", "--state", &scene.at("root/new")]).refused(3, "nothing to undo");
    scene.run(&["confirm", "--state", &scene.at("root/new")]).refused(3, "no apply awaits");
    assert_eq!(scene.look(), before);
}

#[test]
fn planted_entries_are_not_carried_out() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let (state, target) = (scene.at("root/journal"), scene.at("root/cron"));
    // Root's own entry, of a file that it has written; and the attacker's, by which an undo would write another.
    let (own, kept) = (scene.at("own"), scene.at("root/kept"));
    scene.shell("mkdir -m 777 $D/root/journal; echo new > $D/root/kept").fine();
    fs::write(
        format!("{state}/000001.journal"),
        entry(1, &format!("file:{kept}"), Some("old\n"), Some("new\n")),
    )
    .unwrap();
    fs::write(&own, entry(2, &format!("file:{target}"), Some("* * * * * root x\n"), None)).unwrap();
    scene.shell("$A cp $D/own $D/root/journal/000002.journal").fine();
    let undone = |arguments: &[&str]| scene.run(&[arguments, &["--state", &state]].concat());
    let before = scene.look();
    for arguments in [&["undo"][..], &["undo", "2"], &["undo", "2", "--print"], &["status"], &["confirm"]] {
        undone(arguments).refused(3, "can be changed by other users (mode 777)");
        assert_eq!(scene.look(), before, "{arguments:?}");
    }
    // The owner of the entry stays the attacker, whatever becomes of the folder.
    scene.shell("chmod 700 $D/root/journal").fine();
    let status = undone(&["status"]);
    assert_eq!(status.code, Some(1), "{}", status.err);
    assert!(status.err.contains("journal entry 2 cannot be read"), "{}", status.err);
    assert!(status.out.contains("root/kept"), "{}", status.out);
    for arguments in
        [&["undo", "2"][..], &["undo", "2", "--force"], &["undo", "2", "--print"], &["confirm", "2"]]
    {
        undone(arguments).refused(3, "000002.journal belongs to user 65534");
    }
    // Nor one that anybody may change, or that has another entry's name.
    scene.shell("rm $D/root/journal/000002.journal; cp $D/own $D/root/journal/000002.journal; chmod 666 $D/root/journal/000002.journal").fine();
    undone(&["undo", "2"]).refused(3, "can be changed by other users (mode 666)");
    scene.shell("mv $D/root/journal/000002.journal $D/root/journal/000003.journal; chmod 600 $D/root/journal/000003.journal").fine();
    undone(&["undo", "3"]).refused(3, "begins entry 2, not 3");
    assert!(!Path::new(&target).exists(), "a planted entry was carried out");
    undone(&["undo", "--forget", "3"]).fine();
    // A folder above it that others may change leads anywhere.
    scene.shell("chmod 777 $D/root").fine();
    undone(&["undo", "1"]).refused(3, "can be changed by other users (mode 777)");
    scene.shell("chmod 755 $D/root").fine();
    undone(&["undo", "1"]).fine();
    assert_eq!(fs::read_to_string(&kept).unwrap(), "old\n");
}

#[test]
fn odd_files_among_the_entries_block_themselves_alone() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let (state, kept) = (scene.at("root/journal"), scene.at("root/kept"));
    scene
        .shell(
            "mkdir -m 700 $D/root/journal; cd $D/root/journal; truncate -s 3G 000002.journal; mkfifo 000003.journal
             ln -s 000001.journal 000004.journal; mkdir 000005.journal; touch 18446744073709551615.journal
             touch 18446744073709551614.closed; touch 99999999999999999999.journal.swp; echo 1 > lock; echo new > $D/root/kept",
        )
        .fine();
    fs::write(
        format!("{state}/000001.journal"),
        entry(1, &format!("file:{kept}"), Some("old\n"), Some("new\n")),
    )
    .unwrap();
    let run = |arguments: &[&str]| scene.run(&[arguments, &["--state", &state]].concat());
    let status = run(&["status"]);
    assert_eq!(status.code, Some(1), "{}", status.err);
    assert!(status.err.contains("5 journal entries cannot be read"), "{}", status.err);
    assert!(status.out.contains("root/kept"), "{}", status.out);
    for (id, part) in [
        ("2", "is longer than"),
        ("3", "is a FIFO"),
        ("4", "is a symbolic link"),
        ("5", "is a folder"),
        ("18446744073709551615", "is missing: the file is empty"),
    ] {
        for verb in [&["undo", id][..], &["confirm", id], &["undo", id, "--print"]] {
            let said = run(verb);
            assert_eq!(said.code, Some(3), "{verb:?}: {}", said.err);
            assert!(said.err.contains(part), "{verb:?}: {}", said.err);
        }
        run(&["undo", "--forget", id]).fine();
    }
    run(&["status"]).fine();
    run(&["undo", "1"]).fine();
    assert_eq!(fs::read_to_string(&kept).unwrap(), "old\n");
}
