//! Options of UDP sockets, set when an unmodified program binds or connects one: loader of `bpf/policy.bpf.c`.
//!
//! ```text
//!  /sys/fs/bpf/udpath/policy/
//!    bind4 bind6 connect4 connect6 sock_create    links to the root of cgroup v2
//!    nodes policies outcomes                      maps
//! ```
//! Unlike all other attachments of udpath these are pinned, and stay in effect when the process ends. One set of links
//! serves every policy: each policy is an element of the map `policies`, so that setting and removing one is a single
//! system call, which happens or does not. Without policies the programs return at once.
//!
//! - `maps.rs`: the maps' keys and values, cgroups as nodes of a tree. `hooks.rs`: the links, and who else is at their
//!   hooks.

mod hooks;
mod maps;

use std::fs;
use std::io;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use aya::EbpfLoader;
use aya::maps::{HashMap, Map, MapData, MapError};

pub use hooks::{Program, programs_at};
use maps::{Node, Tree};

use crate::Error;
use crate::attach::{self, errno, object};
use crate::error::Cause;

const NAME: &str = "policy";
/// The folder of the links and maps, below the mount point of the BPF file system.
const FOLDER: &str = "udpath/policy";
const NODES: &str = "nodes";
const POLICIES: &str = "policies";
const OUTCOMES: &str = "outcomes";
const MAPS: [&str; 3] = [NODES, POLICIES, OUTCOMES];

/// An option that a policy can set. `bpf_setsockopt` has no others that concern UDP (`sol_socket_sockopt` in
/// net/core/filter.c of Linux 6.1, 6.12 and 6.18): neither `SO_INCOMING_CPU` nor `SO_BUSY_POLL`, and no
/// `SO_RCVBUFFORCE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyOption {
    /// `SO_RCVBUF`, in bytes as `ss -m` shows them: twice what the program would ask for. The kernel clamps it to twice
    /// `net.core.rmem_max` at the time of the bind.
    ReceiveBuffer,
    /// `SO_SNDBUF`, likewise, by `net.core.wmem_max`.
    SendBuffer,
    /// `SO_REUSEPORT`, 0 or 1. Only for a bind to a port that the program names.
    Reuseport,
    /// `SO_PRIORITY`: the band of the qdisc.
    Priority,
    /// `SO_MARK`, for routing rules and packet filters.
    Mark,
}

impl PolicyOption {
    /// All, in the order of the program's `enum option`.
    pub const ALL: [Self; 5] =
        [Self::ReceiveBuffer, Self::SendBuffer, Self::Reuseport, Self::Priority, Self::Mark];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveBuffer => "receive-buffer",
            Self::SendBuffer => "send-buffer",
            Self::Reuseport => "reuseport",
            Self::Priority => "priority",
            Self::Mark => "mark",
        }
    }
}

/// The sockets that a policy is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyTarget {
    /// The cgroup of the thread that binds, or one above it, as in `/proc/PID/cgroup`: `/system.slice/nsd.service`; `/`
    /// for all.
    pub cgroup: String,
    /// Only binds to this port.
    pub port: Option<NonZeroU16>,
}

/// What a policy sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    values: [Option<u32>; PolicyOption::ALL.len()],
}

impl Policy {
    /// The value of an option; `None` if the policy leaves it alone.
    #[must_use]
    pub fn get(&self, option: PolicyOption) -> Option<u32> {
        self.values[option as usize]
    }

    /// Sets an option, or leaves it alone.
    pub fn set(&mut self, option: PolicyOption, value: Option<u32>) {
        self.values[option as usize] = value;
    }

    /// Does it set nothing?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }
}

/// What happened to a socket when it was bound or connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    set: u32,
    refused: u32,
    values: [u32; PolicyOption::ALL.len()],
}

impl Outcome {
    /// What a policy set this option to, as the kernel had it afterwards; `None` if none did.
    #[must_use]
    pub fn get(&self, option: PolicyOption) -> Option<u32> {
        (self.set & 1 << option as u32 != 0).then_some(self.values[option as usize])
    }

    /// Did the kernel refuse to?
    #[must_use]
    pub fn was_refused(&self, option: PolicyOption) -> bool {
        self.refused & 1 << option as u32 != 0
    }
}

/// The installed policies of this machine.
#[derive(Debug)]
pub struct Policies {
    folder: PathBuf,
    nodes: HashMap<MapData, maps::NodeBytes, u32>,
    policies: HashMap<MapData, maps::PlaceBytes, maps::PolicyBytes>,
    outcomes: HashMap<MapData, u64, maps::OutcomeBytes>,
}

impl Policies {
    /// The policies that are pinned in the BPF file system at `bpffs`; `None` if there are none.
    ///
    /// # Errors
    /// No permission, or another program has pinned something else there.
    pub fn open(bpffs: &Path) -> Result<Option<Self>, Error> {
        let folder = bpffs.join(FOLDER);
        if is_whole(&folder)? { Self::pinned(folder).map(Some) } else { Ok(None) }
    }

    /// Attaches the programs to `root`, the root of cgroup v2, and pins them at `bpffs`. Maps that are already there
    /// are kept, with their policies; an incomplete set of them is replaced.
    ///
    /// # Errors
    /// No permission; a program that tolerates no other is attached to the root; or no BPF file system is mounted
    /// there.
    pub fn install(bpffs: &Path, root: &Path) -> Result<Self, Error> {
        let folder = bpffs.join(FOLDER);
        if !is_whole(&folder)? {
            // Programs that are attached would use maps that are pinned nowhere.
            Self::uninstall(bpffs)?;
        }
        fs::create_dir_all(&folder).map_err(|error| refused(&folder, error.into()))?;
        let pins = MAPS.map(|map| (map, folder.join(map)));
        let mut loader = EbpfLoader::new();
        for (map, path) in &pins {
            loader.map_pin_path(map, path);
        }
        if !hooks::missing(&folder)?.is_empty() {
            let mut object = attach::load_tracing(NAME, &mut loader, object!("policy"))?;
            hooks::attach(&mut object, &folder, root)?;
        }
        Self::pinned(folder)
    }

    fn pinned(folder: PathBuf) -> Result<Self, Error> {
        let open = |map: &str| MapData::from_pin(folder.join(map)).map_err(|error| of_map(&folder, error));
        let other = |error| of_map(&folder, error);
        Ok(Self {
            nodes: HashMap::try_from(Map::HashMap(open(NODES)?)).map_err(other)?,
            policies: HashMap::try_from(Map::HashMap(open(POLICIES)?)).map_err(other)?,
            outcomes: HashMap::try_from(Map::LruHashMap(open(OUTCOMES)?)).map_err(other)?,
            folder,
        })
    }

    /// Hooks whose program is not attached: its link was removed or detached. The policies are not in effect there.
    ///
    /// # Errors
    /// No permission.
    pub fn missing(&self) -> Result<Vec<&'static str>, Error> {
        hooks::missing(&self.folder)
    }

    /// IDs of the programs that are attached.
    ///
    /// # Errors
    /// No permission.
    pub fn programs(&self) -> Result<Vec<u32>, Error> {
        hooks::programs(&self.folder)
    }

    /// All policies.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn list(&self) -> Result<Vec<(PolicyTarget, Policy)>, Error> {
        let tree = self.tree()?;
        let mut list = Vec::new();
        for found in self.policies.iter() {
            let (place, policy) = found.map_err(|error| of_map(&self.folder, error))?;
            let (node, port) = maps::place(&place);
            // A node is removed only after its policies.
            if let Some(cgroup) = tree.path(node) {
                list.push((PolicyTarget { cgroup, port }, maps::policy(&policy)));
            }
        }
        list.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(list)
    }

    /// The policy of a target; empty if there is none.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn get(&self, target: &PolicyTarget) -> Result<Policy, Error> {
        let Some(node) = self.tree()?.find(&target.cgroup) else { return Ok(Policy::default()) };
        match self.policies.get(&maps::place_bytes(node, target.port), 0) {
            Ok(bytes) => Ok(maps::policy(&bytes)),
            Err(MapError::KeyNotFound) => Ok(Policy::default()),
            Err(error) => Err(of_map(&self.folder, error)),
        }
    }

    /// Replaces the policy of a target; an empty one removes it. In force from the next bind.
    ///
    /// # Errors
    /// The cgroup's path is too long, or there is no room.
    pub fn set(&mut self, target: &PolicyTarget, policy: &Policy) -> Result<(), Error> {
        let mut tree = self.tree()?;
        if policy.is_empty() {
            if let Some(node) = tree.find(&target.cgroup) {
                let removed = self.policies.remove(&maps::place_bytes(node, target.port));
                self.gone(removed)?;
            }
            return self.prune(tree);
        }
        // The nodes first: only the policy makes them do anything.
        let (node, new) =
            tree.grow(&target.cgroup).map_err(|why| refused(Path::new(&target.cgroup), why.into()))?;
        for (id, node) in new {
            let inserted = self.nodes.insert(maps::node_bytes(&node), id, 0);
            inserted.map_err(|error| of_map(&self.folder, error))?;
        }
        let place = maps::place_bytes(node, target.port);
        self.policies
            .insert(place, maps::policy_bytes(policy), 0)
            .map_err(|error| of_map(&self.folder, error))
    }

    /// What was done to a socket, by its cookie; `None` if it was bound before the policy, or belongs to none.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn outcome(&self, cookie: u64) -> Result<Option<Outcome>, Error> {
        match self.outcomes.get(&cookie, 0) {
            Ok([set, refused, values @ ..]) => Ok(Some(Outcome { set, refused, values })),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(of_map(&self.folder, error)),
        }
    }

    /// Detaches the programs, and removes everything that is pinned at `bpffs`, whole or in part.
    ///
    /// # Errors
    /// No permission.
    pub fn uninstall(bpffs: &Path) -> Result<(), Error> {
        let folder = bpffs.join(FOLDER);
        let failed = |error: io::Error| refused(&folder, error.into());
        match udpath_files::names(&folder, udpath_files::MAX_NAMES) {
            Ok(names) => {
                for name in names {
                    fs::remove_file(folder.join(name)).map_err(failed)?;
                }
                fs::remove_dir(&folder).map_err(failed)?;
            }
            // Perhaps its parent is left of one that was cut short.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // Its parent is for all that udpath pins, and stays while it has something else.
        let _ = folder.parent().map(fs::remove_dir);
        Ok(())
    }

    fn tree(&self) -> Result<Tree, Error> {
        let nodes: Result<Vec<(u32, Node)>, MapError> =
            self.nodes.iter().map(|found| found.map(|(node, id)| (id, maps::node(&node)))).collect();
        nodes.map(Tree::of).map_err(|error| of_map(&self.folder, error))
    }

    /// Removes nodes that lead to no policy.
    fn prune(&mut self, tree: Tree) -> Result<(), Error> {
        let used: Result<Vec<u32>, MapError> =
            self.policies.keys().map(|found| found.map(|place| maps::place(&place).0)).collect();
        let used = used.map_err(|error| of_map(&self.folder, error))?;
        for node in tree.unused(&used) {
            let removed = self.nodes.remove(&maps::node_bytes(&node));
            self.gone(removed)?;
        }
        Ok(())
    }

    /// The outcome of a removal; what was not there is gone as well.
    fn gone(&self, removed: Result<(), MapError>) -> Result<(), Error> {
        match removed {
            Err(error) if errno(&error) != Some(libc::ENOENT) => Err(of_map(&self.folder, error)),
            _ => Ok(()),
        }
    }
}

/// Are all maps pinned? An installation or a removal that was cut short leaves only some, without a policy.
fn is_whole(folder: &Path) -> Result<bool, Error> {
    for map in MAPS {
        match fs::metadata(folder.join(map)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(refused(folder, error.into())),
        }
    }
    Ok(true)
}

fn refused(path: &Path, source: Cause) -> Error {
    Error::Pin { path: path.to_owned(), source }
}

fn of_map(folder: &Path, error: MapError) -> Error {
    let why: Cause = match (&error, errno(&error)) {
        (MapError::InvalidKeySize { .. } | MapError::InvalidValueSize { .. }, _) => {
            format!("pinned by another version of udpath; remove it with rm -r {}", folder.display()).into()
        }
        (_, Some(libc::EPERM | libc::EACCES)) => "run as root".into(),
        (_, Some(libc::E2BIG)) => "it has room for no more policies".into(),
        _ => attach::cause(&error),
    };
    refused(folder, why)
}
