//! Knot with a configuration database: the file beside it is not in use, and is neither shown nor changed.

use std::process::{Child, Command};

use super::*;

/// Where knotd looks for a database if it is told nothing.
const USUAL: &str = "/var/lib/knot/confdb";

/// The sentence for a server with a database, which says how that is changed.
const BY_ITS_DATABASE: &str = "udpath: knot runs by its database, which is not read here: `knotc conf-read server` shows it, `knotc conf-begin`, \
                               `conf-set` and `conf-commit` change it\n";

/// A lab, and a folder with a configuration file.
struct Place {
    lab: Lab,
    folder: TempDir,
}

impl Place {
    fn new(name: &str) -> Self {
        let place = Self { lab: client_and_server(name, 1), folder: tempfile::tempdir_in(ROOTS).unwrap() };
        fs::write(place.file(), place.text()).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn file(&self) -> String {
        self.path("knot.conf")
    }

    fn text(&self) -> String {
        let here = self.folder.path().display();
        format!(
            "server:\n    rundir: \"{here}\"\n    listen: 127.0.0.1@5300\n    udp-workers: 1\ndatabase:\n    storage: \"{here}\"\n"
        )
    }

    /// Makes a database of the file, as an operator does.
    fn import(&self, database: &str) {
        let imported = Command::new("knotc").args(["-C", database, "conf-import", &self.file()]).output();
        let imported = imported.expect("scripts/setup.sh test installs knot");
        assert!(imported.status.success(), "{imported:?}");
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut knotd = self.lab.machine("server").unwrap().command("knotd");
        knotd.args(arguments).stdout(fs::File::create(self.path("log")).unwrap());
        let server = self.lab.spawn(knotd).unwrap();
        awaited("knotd to answer", TIMEOUT, || answers(&self.lab).then_some(()));
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Nothing is shown of it as its configuration, and nothing is changed.
    fn is_left_alone(&self, knotd: &mut Child) {
        let state = self.path("state");
        let before = self.files();
        let allowed = ["--restart", "true", "--allow", "config", "--allow", "restart", "--state", &state];
        for arguments in [
            &["plan", "--service", "5300"][..],
            &["plan", "--set", "service:5300:udp-workers=2"],
            &[&["apply", "--service", "5300"][..], &allowed].concat(),
            &[&["apply", "--set", "service:5300:udp-workers=2"][..], &allowed].concat(),
        ] {
            let said = udpath(&self.lab, "server", arguments).finish();
            assert_eq!(
                (said.code(), said.out.as_str(), said.err.as_str()),
                (Some(3), "", BY_ITS_DATABASE),
                "{arguments:?}"
            );
        }
        let undo = udpath(&self.lab, "server", &["undo", "--state", &state]).finish();
        ended(&undo, 3, "nothing to undo");
        assert_eq!(self.files(), before);
        assert!(
            answers(&self.lab) && knotd.try_wait().unwrap().is_none(),
            "it was neither ended nor restarted"
        );
        // The knob that the sentence names is there.
        let mut read = self.lab.machine("server").unwrap().command("knotc");
        let read =
            read.args(["-s", &self.path("knot.sock"), "conf-read", "server.udp-workers"]).output().unwrap();
        assert_eq!(String::from_utf8(read.stdout).unwrap(), "server.udp-workers = 1\n");
        knotd.kill().unwrap();
        knotd.wait().unwrap();
    }

    /// What could be taken for its configuration.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let all = [self.file(), "/etc/knot/knot.conf".to_owned()];
        all.into_iter().filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes))).collect()
    }
}

#[test]
fn a_database_that_its_arguments_name_is_left_alone() {
    udpath_lab::needs_root!();
    let place = Place::new("confdb-named");
    let database = place.path("confdb");
    place.import(&database);
    let mut knotd = place.start(&["-C", &database]);
    assert!(place.log().contains(&format!("loaded configuration database '{database}'")), "{}", place.log());
    place.is_left_alone(&mut knotd);
}

/// Removes the folder again.
struct Usual;

impl Usual {
    /// A place where no database may be: knotd's own would be lost.
    fn free() -> Self {
        assert!(
            !Path::new(USUAL).exists(),
            "{USUAL} exists, and this test would replace it: run it with scripts/fresh-root.sh"
        );
        fs::create_dir_all(USUAL).unwrap();
        Self
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(USUAL);
    }
}

/// As Debian's unit starts it.
#[test]
fn the_usual_database_is_preferred_to_the_file_of_the_package() {
    udpath_lab::needs_root!();
    let place = Place::new("confdb-usual");
    let _usual = Usual::free();
    place.import(USUAL);
    let mut knotd = place.start(&[]);
    assert!(place.log().contains(&format!("loaded configuration database '{USUAL}'")), "{}", place.log());
    assert!(Path::new("/etc/knot/knot.conf").exists(), "the package's file is there, and not in use");
    place.is_left_alone(&mut knotd);
}
