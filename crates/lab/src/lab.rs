//! A running lab: built step by step, each with its inverse, and taken down in reverse order.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use udpath_steer::CpuSet;

use crate::blueprint::{IPV4_PREFIX, IPV6_PREFIX};
use crate::flow_table::FlowTable;
use crate::namespace::{self, Inside};
use crate::record::{Record, SharedRecord, with};
use crate::site::Site;
use crate::spawner::Spawner;
use crate::undo::Undo;
use crate::{
    Blueprint, End, Error, LinkBlueprint, Topology, ethtool, labs, moderation, processes, user_namespace,
};

/// How long a link may take until it carries traffic. It takes milliseconds. Too low: it fails on a heavily loaded
/// machine. Too high: a driver's failure is reported late.
const LINK_UP: Duration = Duration::from_secs(10);
/// Pause between two checks of a link that is not up yet: the kernel's work takes about that long.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A running lab, owned by this process. It ends when it is dropped or the process ends for any reason: programs
/// started with [`Lab::spawn`] are killed, then links, namespaces and the record are removed, the last created first.
/// Its machines and addresses are those of its [`Topology`].
///
/// ```no_run
/// use udpath_lab::{LabBuilder, LinkSpec};
/// # fn main() -> Result<(), udpath_lab::Error> {
/// let lab = LabBuilder::new("pair")
///     .machine("client")
///     .machine("server")
///     .link("client", "server", &LinkSpec::with_queues(2))
///     .up()?;
/// let to = lab.address_of("server", "client")?.ipv4;
/// lab.machine("client")?.run(|| println!("from here the server is {to}"))?;
/// lab.down()
/// # }
/// ```
pub struct Lab {
    // Fields drop in this order: programs end first, then the machines they run on.
    spawner: Spawner,
    flow_table: FlowTable,
    undo: Undo,
    topology: Topology,
}

impl Deref for Lab {
    type Target = Topology;

    fn deref(&self) -> &Topology {
        &self.topology
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab")
            .field("name", &self.name())
            .field("machines", &self.machines())
            .finish_non_exhaustive()
    }
}

impl Lab {
    pub(crate) fn up(blueprint: Blueprint) -> Result<Self, Error> {
        Self::build(blueprint, false).map(|(lab, _record)| lab)
    }

    pub(crate) fn up_kept(blueprint: Blueprint) -> Result<Blueprint, Error> {
        if user_namespace::is_inside() {
            return Err(Error::KeptNeedsRoot);
        }
        let (mut lab, record) = Self::build(blueprint, true)?;
        with(&record, Record::keep)?;
        lab.undo.forget();
        Ok(lab.blueprint().clone())
    }

    fn build(blueprint: Blueprint, to_be_kept: bool) -> Result<(Self, SharedRecord), Error> {
        labs::sweep_stale()?;
        for machine in &blueprint.machines {
            let path = namespace::path(&machine.namespace);
            if path.symlink_metadata().is_ok() {
                let (name, object) = (blueprint.name.clone(), path.display().to_string());
                return Err(Error::Exists { name, object });
            }
        }
        let mut undo = Undo::default();
        let record = record(&blueprint, to_be_kept, &mut undo)?;
        let mut sites = Vec::with_capacity(blueprint.machines.len());
        for machine in &blueprint.machines {
            sites.push(site(&blueprint.name, &machine.name, &machine.namespace, &record, &mut undo)?);
        }
        for link in &blueprint.links {
            join(&sites, link, &mut undo)?;
        }
        for link in &blueprint.links {
            finish(&sites, link, Instant::now() + LINK_UP)?;
        }
        let spawner = Spawner::start(&blueprint.name)?;
        let flow_table = FlowTable::new(Arc::clone(&record));
        Ok((Self { spawner, flow_table, undo, topology: Topology::new(blueprint, sites) }, record))
    }

    /// Starts a program made with [`Machine::command`](crate::Machine::command) so that it lives as long as the lab,
    /// whichever thread calls this.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(&self, command: Command) -> Result<Child, Error> {
        self.spawner.spawn(command, None)
    }

    /// The same, on these CPUs alone.
    ///
    /// # Errors
    /// The program cannot be started, or may use none of the CPUs.
    pub fn spawn_on(&self, command: Command, cpus: &CpuSet) -> Result<Child, Error> {
        self.spawner.spawn(command, Some(cpus.clone()))
    }

    /// Switches the flow table that RFS needs on or off ([`Rps::flows`](crate::Rps::flows)). The kernel has one for the
    /// whole machine: it is switched on only if it is off, and off again at the end of the lab, also after a kill. Call
    /// it outside of the lab's machines.
    ///
    /// # Errors
    /// The kernel's error; a network namespace that is not the machine's own has no such table.
    pub fn set_flow_table(&self, on: bool) -> Result<(), Error> {
        self.flow_table.set(on)
    }

    /// Takes the lab down, as dropping does, and reports errors. Whatever is left then stays in the record, and the
    /// next lab on this machine tries again.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn down(self) -> Result<(), Error> {
        let Self { spawner, flow_table, mut undo, .. } = self;
        drop(spawner);
        let off = flow_table.set(false);
        if off.is_err() {
            // The record of it stays for the next sweep.
            undo.keep_first();
        }
        off.and(undo.unwind())
    }
}

fn record(blueprint: &Blueprint, to_be_kept: bool, undo: &mut Undo) -> Result<SharedRecord, Error> {
    let record = Arc::new(Mutex::new(Some(Record::create(blueprint, to_be_kept)?)));
    let shared = Arc::clone(&record);
    undo.push(move || match shared.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(record) => record.remove(),
        None => Ok(()),
    });
    Ok(record)
}

fn site(
    lab: &str,
    name: &str,
    namespace: &str,
    record: &SharedRecord,
    undo: &mut Undo,
) -> Result<Arc<Site>, Error> {
    let inside = Inside::new(name)?;
    let identity = namespace::give_name(&inside, namespace)?;
    let (machine, named) = (name.to_owned(), namespace.to_owned());
    undo.push(move || {
        processes::end_all_in(identity, &machine)?;
        namespace::take_name(&named)
    });
    with(record, |record| record.made(namespace, identity.inode))?;
    Ok(Site::new(lab, name, namespace, inside))
}

/// Creates a link and configures it. Both ends are created inside their machines: the host never sees them.
fn join(sites: &[Arc<Site>], link: &LinkBlueprint, undo: &mut Undo) -> Result<(), Error> {
    let LinkBlueprint { spec, ends: [one, other] } = link;
    let (here, there) = (at(sites, one), at(sites, other));
    let named = format!("{} - {}", object(one), object(other));
    here.rtnl(|rtnl| rtnl.add_link(one, other, there.net(), spec)).map_err(|refused| {
        Error::netlink(format!("create link {named} with {} queues", spec.queues), refused)
    })?;
    let (site, ifindex) = (Arc::clone(here), one.ifindex);
    undo.push(move || {
        let deleted = site.rtnl(|rtnl| rtnl.delete_link(ifindex));
        deleted.map_err(|refused| Error::netlink(format!("remove link {named}"), refused))
    });
    for (site, end) in [(here, one), (there, other)] {
        ethtool::set_offloads(site.control(), &end.interface, &spec.offloads)
            .map_err(|source| Error::system(format!("set the offloads of {}", object(end)), source))?;
        if spec.moderation > 0 {
            site.run(|| moderation::write(&object(end), &end.interface, spec.moderation))??;
        }
        site.rtnl(|rtnl| rtnl.set_silent(end.ifindex))
            .map_err(|refused| Error::netlink(format!("silence {}", object(end)), refused))?;
        for (ip, prefix) in addresses(end) {
            site.rtnl(|rtnl| rtnl.add_address(end.ifindex, ip, prefix))
                .map_err(|refused| Error::netlink(format!("add address {ip} to {}", object(end)), refused))?;
        }
    }
    Ok(())
}

/// Sets a link up once its addresses are usable, waits until it carries traffic, and adds the neighbours of its ends.
fn finish(sites: &[Arc<Site>], link: &LinkBlueprint, deadline: Instant) -> Result<(), Error> {
    let LinkBlueprint { spec, ends: [one, other] } = link;
    let failed = |what: String| move |refused| Error::netlink(what, refused);
    for end in [one, other] {
        let site = at(sites, end);
        for (ip, _) in addresses(end) {
            wait_for(&format!("address {ip} of {}", object(end)), deadline, || {
                site.rtnl(|rtnl| rtnl.is_local(ip))
                    .map_err(failed(format!("look up {ip} in {}", end.machine)))
            })?;
        }
        site.rtnl(|rtnl| rtnl.set_up(end.ifindex)).map_err(failed(format!("set up {}", object(end))))?;
    }
    for (end, peer) in [(one, other), (other, one)] {
        let site = at(sites, end);
        wait_for(&format!("{} to be up", object(end)), deadline, || {
            site.rtnl(|rtnl| rtnl.is_up(end.ifindex))
                .map_err(failed(format!("read the state of {}", object(end))))
        })?;
        for (ip, _) in addresses(peer) {
            site.rtnl(|rtnl| rtnl.add_neighbour(end.ifindex, ip, peer.mac))
                .map_err(failed(format!("add neighbour {ip} to {}", object(end))))?;
        }
        // Offloads are the only setting that the kernel drops silently.
        let found = ethtool::offloads(site.control(), &end.interface)
            .map_err(|source| Error::system(format!("read the offloads of {}", object(end)), source))?;
        if found != spec.offloads {
            let (wanted, found) = (spec.offloads.to_string(), found.to_string());
            return Err(Error::NotTaken { what: "offloads", object: object(end), wanted, found });
        }
    }
    Ok(())
}

fn wait_for(what: &str, deadline: Instant, is_so: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
    while !is_so()? {
        if Instant::now() >= deadline {
            return Err(Error::Deadline { what: what.to_owned(), seconds: LINK_UP.as_secs() });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// `machine/interface`.
fn object(end: &End) -> String {
    format!("{}/{}", end.machine, end.interface)
}

fn at<'a>(sites: &'a [Arc<Site>], end: &End) -> &'a Arc<Site> {
    let found = sites.iter().find(|site| site.name == end.machine);
    found.expect("the builder has checked that every end is in a machine of the lab")
}

fn addresses(end: &End) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
    let ipv4 = end.ipv4.iter().map(|&ip| (IpAddr::V4(ip), IPV4_PREFIX));
    ipv4.chain(end.ipv6.iter().map(|&ip| (IpAddr::V6(ip), IPV6_PREFIX)))
}
