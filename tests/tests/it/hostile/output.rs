//! Results that root writes into a folder where others have put links and pipes.

use std::fs;
use std::path::PathBuf;

use super::Scene;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/0.1").join(name);
    path.display().to_string()
}

#[test]
fn links_of_another_user_are_not_followed() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    scene
        .shell(
            "echo secret > $D/root/secret; chmod 600 $D/root/secret; mkdir $D/root/folder
             $A sh -c 'cd $D; ln -s root/secret file; ln -s root/folder folder; ln -s root/none dangling; mkfifo fifo'",
        )
        .fine();
    let before = scene.look();
    let result = fixture("load-1.json");
    for name in ["file", "folder/x", "dangling", "fifo"] {
        let html = scene.at(name);
        for arguments in [
            &["report", &result, "-o", &html][..],
            &["history", "add", &result, "--store", &html],
            &["history", "--store", &html],
        ] {
            let said = scene.run(arguments);
            assert!(matches!(said.code, Some(2 | 3)), "{arguments:?}: {:?} {}", said.code, said.err);
            assert!(said.err.contains("65534"), "{arguments:?}: {}", said.err);
        }
    }
    let archive = scene.at("folder/x.tar.gz");
    scene.run(&["support", "-o", &archive]).refused(3, "is a symbolic link of user 65534");
    scene.run(&["report", &fixture("load-1.json"), "-o", &scene.at("folder/new/x")]).refused(3, "65534");
    // Folders of the history are not created behind a link either.
    scene.run(&["history", "add", &result, "--store", &scene.at("folder/new/h.db")]).refused(3, "65534");
    assert_eq!(scene.look(), before);
    // A database of theirs is not opened; a page of theirs is replaced by root's own.
    scene.shell("$A sh -c 'touch $D/theirs.db $D/theirs.html; chmod 666 $D/theirs.*'").fine();
    scene
        .run(&["history", "add", &result, "--store", &scene.at("theirs.db")])
        .refused(2, "belongs to user 65534");
    scene.run(&["report", &result, "-o", &scene.at("theirs.html")]).fine();
    assert!(scene.shell("stat -c %u $D/theirs.html").fine().out.starts_with("0\n"));
    // Root's own link is followed, and stays one.
    scene.shell("ln -s root/mine.html $D/mine.html; ln -s root/h.db $D/h.db").fine();
    scene.run(&["report", &result, "-o", &scene.at("mine.html")]).fine();
    scene.run(&["history", "add", &result, "--store", &scene.at("h.db")]).fine();
    scene.run(&["history", "--store", &scene.at("h.db")]).fine();
    assert!(fs::symlink_metadata(scene.at("mine.html")).unwrap().is_symlink());
    assert!(fs::metadata(scene.at("root/mine.html")).unwrap().len() > 1000);
    assert!(fs::metadata(scene.at("root/h.db")).unwrap().is_file());
    assert_eq!(fs::read_to_string(scene.at("root/secret")).unwrap(), "secret\n");
}

/// SQLite reads a journal beside a database back into it, and waits at a pipe of that name.
#[test]
fn a_history_where_others_can_put_a_journal_is_refused() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let (result, store) = (fixture("load-1.json"), scene.at("mine.db"));
    scene
        .run(&["history", "add", &result, "--store", &store])
        .refused(2, "others can put a journal beside it");
    // One that was there before, of root's own.
    scene.run(&["history", "add", &result, "--store", &scene.at("root/h.db")]).fine();
    scene.shell("mv $D/root/h.db $D/mine.db; $A mkfifo $D/mine.db-journal").fine();
    let before = scene.look();
    for arguments in [&["history", "add", &result, "--store", &store][..], &["history", "--store", &store]] {
        scene.run(arguments).refused(2, "others can put a journal beside it");
    }
    assert_eq!(scene.look(), before);
}
