//! What udpath reads of a configuration is what the server's own checker prints of it, before and after a change, over
//! generated configurations: with includes that are nested, patterns, relative, repeated or optional; clauses and keys
//! that are repeated; comments, quotes, capitals and units of each kind that the format has.
//!
//! | server | its values are printed by |
//! |---|---|
//! | unbound, nsd | `unbound-checkconf -o KEY`, `nsd-checkconf -o KEY`, with the defaults |
//! | bind9 | `named-checkconf -p` |
//! | knot | `knotc conf-import` and `conf-export`; `conf-read` asks a server that runs |
//! | chrony | `chronyd -p`: all lines in order, of which the last of a key counts |
//! | freeradius | `freeradius -XC`; of `thread pool`, which it does not print, a line that refers to it |
//! | rsyslog | the debugging output of `rsyslogd -dN1`; `-N1` alone accepts or rejects |
//! | coturn | `turnserver`, which has no checker, when it starts |
//!
//! nfcapd has no checker, and that of dnsdist prints no values; `udpath` does not edit dnsdist's program.

mod bind;
mod chrony;
mod clauses;
mod coturn;
mod fixed;
mod freeradius;
mod knot;
mod rsyslog;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::super::profile::{Kind, KnobProfile};
use super::super::proposals::value_of;
use super::super::*;

/// The values of each knob, in the order of the places where it can stand; `None` where it is not set.
type Values = BTreeMap<&'static str, Vec<Option<String>>>;

/// The folder that the checker of a configuration is started in, beneath which relative paths are: not always the main
/// file's own.
fn start_of(main: &Path) -> &Path {
    let folder = main.parent().unwrap();
    if folder.ends_with("conf") { folder.parent().unwrap() } else { folder }
}

/// A server whose checker is asked.
struct Oracle {
    server: &'static str,
    /// The checker: its program, by its path where it is not installed but unpacked.
    program: &'static str,
    /// Writes a configuration; returns the path of its main file.
    generate: fn(&mut Tree) -> PathBuf,
    /// What the checker prints of it; `None`: it is rejected.
    values: fn(&Self, &Path) -> Option<Values>,
    /// Configurations in `make test`; in `make soak` there are 30 times as many.
    cases: u32,
}

/// Small numbers by chance, the same for the same seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn one<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// The files of a configuration that is being generated.
struct Tree {
    folder: PathBuf,
    chance: Chance,
    /// How many files it has.
    files: usize,
}

impl Tree {
    /// Writes a file, by its name in the configuration's folder, and returns its path.
    fn write(&mut self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.files += 1;
        path
    }

    /// Writes the main file: into the folder that the checker is started in, or into one below.
    fn write_main(&mut self, name: &str, text: &str) -> PathBuf {
        let folder = self.chance.one(&["", "conf/"]);
        self.write(&format!("{folder}{name}"), text)
    }

    /// A name for the next file or folder.
    fn name(&mut self, kind: &str) -> String {
        self.files += 1;
        format!("{kind}{}", self.files)
    }

    /// All files with their texts, for a failure's message.
    fn shown(folder: &Path) -> String {
        let mut shown = String::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                match fs::read_to_string(&path) {
                    Ok(text) => shown += &format!("--- {}\n{text}\n", path.display()),
                    Err(_) if path.is_dir() => folders.push(path),
                    Err(_) => {}
                }
            }
        }
        shown
    }
}

impl Oracle {
    fn profile(&self) -> &'static Profile {
        Profile::named(self.server).unwrap()
    }

    /// Runs the checker in a folder.
    fn run(&self, folder: &Path, arguments: &[&str]) -> Output {
        let output = Command::new(self.program).args(arguments).current_dir(folder).env("TZ", "UTC").output();
        output.unwrap_or_else(|error| panic!("{}: {error}", self.program))
    }

    /// Whether the checker is there.
    fn is_installed(&self) -> bool {
        let found = match self.program.contains('/') {
            true => Path::new(self.program).exists(),
            false => {
                ["/usr/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(self.program).exists())
            }
        };
        let required = env::var_os("UDPATH_REQUIRE_ALL").is_some();
        assert!(found || !required, "no {}; `scripts/setup.sh test` installs it", self.program);
        found
    }

    /// The server with this configuration.
    fn service(&self, main: &Path) -> Service {
        let profile = self.profile();
        let main = main.display().to_string();
        let reader = Reader::own(Path::new("/")).unwrap().started_in(start_of(main.as_ref()));
        // The arguments that Debian keeps beside it are no part of what the checker reads.
        let config = Config::read(&reader, &main, profile.format, None).unwrap();
        let drop_in = config.drop_in.clone().filter(|_| profile.drop_in);
        Service { config_path: main, config, drop_in, ..Service::of_text(profile, "") }
    }

    /// The knobs that stand in the files which the checker reads.
    fn knobs(&self) -> impl Iterator<Item = &'static KnobProfile> {
        let arguments = self.profile().arguments.is_some();
        self.profile().knobs.iter().filter(move |knob| !arguments || knob.flag.is_none())
    }

    /// The same as udpath reads it.
    fn read(&self, service: &Service) -> Values {
        let of = |knob: &'static KnobProfile| {
            let places = service.places(knob).into_iter();
            let mut values: Vec<_> =
                places.map(|place| place.found.map(|found| value_of(knob, found).to_owned())).collect();
            // Each line adds an interface, of which there is one here.
            if knob.kind == Kind::Interface {
                values.dedup();
            }
            values
        };
        self.knobs().map(|knob| (knob.name.as_str(), of(knob))).collect()
    }

    /// Whether two values are the same; a knob that is not set has its default.
    fn same(&self, service: &Service, knob: &KnobProfile, one: Option<&str>, other: Option<&str>) -> bool {
        let (one, other) = (one.unwrap_or(&knob.default), other.unwrap_or(&knob.default));
        match knob.kind {
            // The checker's numbers are decimal, without units.
            Kind::Count | Kind::Bytes if one != "cpus" && other != "cpus" => {
                let number = service.number(knob, one);
                number.is_some() && number == other.parse().ok()
            }
            Kind::Switch | Kind::Flag => Kind::is_on(one) == Kind::is_on(other),
            _ => one.split_whitespace().eq(other.split_whitespace()),
        }
    }

    fn agree(&self, service: &Service, ours: &Values, theirs: &Values, context: &dyn Fn() -> String) {
        for knob in self.knobs() {
            let Some(theirs) = theirs.get(knob.name.as_str()) else { continue };
            let ours = &ours[knob.name.as_str()];
            let places = ours.len() == theirs.len();
            let same = ours
                .iter()
                .zip(theirs)
                .all(|(one, other)| self.same(service, knob, one.as_deref(), other.as_deref()));
            assert!(
                places && same,
                "{} {}: {ours:?}, by {} {theirs:?}\n{}",
                self.server,
                knob.name,
                self.program,
                context()
            );
        }
    }

    /// A value for a knob, other than those that the configurations have.
    fn wanted(chance: &mut Chance, knob: &KnobProfile) -> String {
        match knob.kind {
            // imudp has at most 32 threads.
            Kind::Count => (18 + chance.below(14)).to_string(),
            Kind::Bytes => (200_000 + chance.below(9_000)).to_string(),
            Kind::Switch => chance.one(&["on", "off"]).to_owned(),
            Kind::Flag => "yes".to_owned(),
            Kind::Interface => "lo@5354".to_owned(),
            Kind::Text => unreachable!("never set"),
        }
    }

    /// Compares all knobs of all cases, and again after each of the knobs that can be set was.
    fn consult(&self) {
        if !self.is_installed() {
            return;
        }
        let cases = if env::var_os("UDPATH_SOAK").is_some() { 30 * self.cases } else { self.cases };
        let (mut accepted, mut changed, mut asked) = (0, 0, 0);
        for case in 0..cases {
            let folder = tempfile::tempdir().unwrap();
            let folder_path = fs::canonicalize(folder.path()).unwrap();
            let mut tree = Tree { folder: folder_path.clone(), chance: Chance(u64::from(case)), files: 0 };
            let main = (self.generate)(&mut tree);
            let Some(theirs) = (self.values)(self, &main) else { continue };
            accepted += 1;
            let before = Tree::shown(&folder_path);
            let context = || format!("case {case}\n{before}");
            let service = self.service(&main);
            assert_eq!(service.unread(), [""; 0], "{}", context());
            self.agree(&service, &self.read(&service), &theirs, &context);
            let settable: Vec<&KnobProfile> = self.knobs().filter(|knob| knob.kind != Kind::Text).collect();
            let knob = settable[tree.chance.below(settable.len())];
            let value = self.spelled(knob, &Self::wanted(&mut tree.chance, knob));
            let places = service.places(knob).len();
            asked += 1;
            let proposal = match service.propose(&knob.name, &value) {
                Ok(proposal) => proposal,
                // It has no socket, or no module, whose knob it is.
                Err(why) if places == 0 => {
                    assert!(why.to_string().contains("has no"), "{why}");
                    continue;
                }
                Err(why) => panic!("{} {}={value}: {why}\n{}", self.server, knob.name, context()),
            };
            changed += 1;
            for file in service.files(&[proposal]).unwrap() {
                fs::write(&file.path, &file.new).unwrap();
            }
            let id = format!("{}={value}", knob.name);
            let context =
                || format!("case {case}, after {id}\n{before}\n=====\n{}", Tree::shown(&folder_path));
            let after = (self.values)(self, &main);
            let after = after.unwrap_or_else(|| panic!("{} rejects it\n{}", self.program, context()));
            let mut expected = theirs;
            expected.entry(&knob.name).and_modify(|values| values.fill(Some(value.clone())));
            for other in self.knobs() {
                let of = |values: &Values| values.get(other.name.as_str()).cloned();
                let (expected, after) = (of(&expected).unwrap_or_default(), of(&after).unwrap_or_default());
                let same = |(one, other_one): (&Option<String>, &Option<String>)| {
                    self.same(&service, other, one.as_deref(), other_one.as_deref())
                        || one.as_deref() == other_one.as_deref()
                };
                assert!(
                    expected.len() == after.len() && expected.iter().zip(&after).all(same),
                    "{} {}: should be {expected:?}, by {} {after:?}\n{}",
                    self.server,
                    other.name,
                    self.program,
                    context()
                );
            }
            let service = self.service(&main);
            self.agree(&service, &self.read(&service), &after, &context);
        }
        assert!(accepted * 4 >= cases * 3, "{}: only {accepted} of {cases} are accepted", self.server);
        assert!(changed * 4 >= asked * 3, "{}: only {changed} of {asked} can be changed", self.server);
    }

    /// A switch in the server's own words.
    fn spelled(&self, knob: &KnobProfile, value: &str) -> String {
        match (knob.kind, value) {
            (Kind::Switch, "on") if self.server != "knot" => "yes".to_owned(),
            (Kind::Switch, "off") if self.server != "knot" => "no".to_owned(),
            _ => value.to_owned(),
        }
    }
}
