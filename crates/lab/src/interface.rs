//! One end of a link: its addresses, its transmit mapping, its receive steering, its offloads, its interrupt
//! moderation, its NAPI.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;

use udpath_steer::{CpuSet, xps as mapping};

use crate::site::Site;
use crate::{
    End, Error, LinkSpec, MacAddress, Offloads, Rps, SpecError, ethtool, moderation, online_cpus, rps, xps,
};

/// One end of a link, in its machine. A clone is the same interface.
#[derive(Clone)]
pub struct Interface {
    site: Arc<Site>,
    spec: LinkSpec,
    end: End,
    peer: End,
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interface({}/{})", self.site.lab, self.object())
    }
}

/// Keeps NAPI on at an interface while this exists.
#[derive(Debug)]
#[must_use = "dropping this disables NAPI again"]
pub struct NapiGuard {
    _pass: udpath_bpf::Pass,
}

impl Interface {
    pub(crate) fn new(site: &Arc<Site>, spec: &LinkSpec, end: &End, peer: &End) -> Self {
        Self { site: Arc::clone(site), spec: spec.clone(), end: end.clone(), peer: peer.clone() }
    }

    /// Its name in its machine: `eth0`, `eth1`, ...
    #[must_use]
    pub fn name(&self) -> &str {
        &self.end.interface
    }

    /// Its index in its machine.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.end.ifindex
    }

    /// Its link-layer address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.end.mac
    }

    /// Its first IPv4 address; the network is a /24.
    #[must_use]
    pub fn ipv4(&self) -> Ipv4Addr {
        self.end.ipv4[0]
    }

    /// Its first IPv6 address; the network is a /64.
    #[must_use]
    pub fn ipv6(&self) -> Ipv6Addr {
        self.end.ipv6[0]
    }

    /// Names, numbers and all addresses of this end.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.end
    }

    /// The same for the other end: the destination of frames from here.
    #[must_use]
    pub fn peer(&self) -> &End {
        &self.peer
    }

    /// The machine at the other end.
    #[must_use]
    pub fn peer_machine(&self) -> &str {
        &self.peer.machine
    }

    /// The interface at the other end.
    #[must_use]
    pub fn peer_interface(&self) -> &str {
        &self.peer.interface
    }

    /// Number of receive queues, and of transmit queues.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.spec.queues
    }

    /// MTU in bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.spec.mtu
    }

    /// Which CPUs currently send on which queue; empty sets without a mapping, when the kernel selects by flow.
    ///
    /// # Errors
    /// [`Error::OneQueue`] if there is nothing to map, or the kernel's error.
    pub fn xps(&self) -> Result<Vec<CpuSet>, Error> {
        self.several_queues()?;
        self.site.run(|| xps::read(&self.object(), self.name(), self.queues()))?
    }

    /// Sets which CPUs send on which queue, one set per queue, and reads it back. On failure the mapping is restored.
    ///
    /// # Errors
    /// [`Error::OneQueue`] if there is nothing to map, a mapping with another length, CPUs that do not exist.
    pub fn set_xps(&self, map: &[CpuSet]) -> Result<(), Error> {
        self.several_queues()?;
        if map.len() != self.queues() as usize {
            let (object, queues, given) = (self.object(), self.queues(), map.len());
            return Err(Error::XpsLength { object, queues, given });
        }
        self.site.run(|| xps::write(&self.object(), self.name(), map))?
    }

    /// Distributes all online CPUs over the queues ([`udpath_steer::xps::spread`]) and returns the mapping that was
    /// set.
    ///
    /// # Errors
    /// The same as [`set_xps`](Self::set_xps).
    pub fn spread_xps(&self) -> Result<Vec<CpuSet>, Error> {
        self.spread_xps_over(&online_cpus()?)
    }

    /// Distributes these CPUs over the queues; the others have no queue of their own.
    ///
    /// # Errors
    /// The same as [`set_xps`](Self::set_xps).
    pub fn spread_xps_over(&self, cpus: &CpuSet) -> Result<Vec<CpuSet>, Error> {
        let map = mapping::spread(cpus, self.queues());
        self.set_xps(&map)?;
        Ok(map)
    }

    /// Removes the mapping.
    ///
    /// # Errors
    /// The same as [`set_xps`](Self::set_xps).
    pub fn clear_xps(&self) -> Result<(), Error> {
        self.set_xps(&vec![CpuSet::new(); self.queues() as usize])
    }

    /// Receive steering of each queue.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn rps(&self) -> Result<Vec<Rps>, Error> {
        self.site.run(|| rps::read(&self.object(), self.name(), self.queues()))?
    }

    /// Sets the receive steering of every queue and reads it back. On failure the former one is restored.
    ///
    /// # Errors
    /// CPUs that do not exist, or the kernel's error (it needs root in the initial user namespace).
    pub fn set_rps(&self, wanted: &Rps) -> Result<(), Error> {
        self.site.run(|| rps::write(&self.object(), self.name(), self.queues(), wanted))?
    }

    /// Current interrupt moderation in microseconds; 0: none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn moderation(&self) -> Result<u64, Error> {
        self.site.run(|| moderation::read(&self.object(), self.name()))?
    }

    /// Which offloads are currently on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn offloads(&self) -> Result<Offloads, Error> {
        ethtool::offloads(self.site.control(), self.name())
            .map_err(|source| Error::system(format!("read the offloads of {}", self.object()), source))
    }

    /// Switches offloads on and off and reads them back. On failure they are restored.
    ///
    /// # Errors
    /// A combination that the kernel would not keep ([`Offloads::unmet`]), or one that the driver does not support.
    pub fn set_offloads(&self, wanted: &Offloads) -> Result<(), Error> {
        if let Some((offload, needs)) = wanted.unmet() {
            return Err(SpecError::Offload { offload, needs }.into());
        }
        let before = self.offloads()?;
        let done = self.try_offloads(wanted);
        if done.is_err() {
            // Report the first failure.
            let _ = ethtool::set_offloads(self.site.control(), self.name(), &before);
        }
        done
    }

    fn try_offloads(&self, wanted: &Offloads) -> Result<(), Error> {
        ethtool::set_offloads(self.site.control(), self.name(), wanted)
            .map_err(|source| Error::system(format!("set the offloads of {}", self.object()), source))?;
        let found = self.offloads()?;
        if found == *wanted {
            return Ok(());
        }
        Err(Error::NotTaken {
            what: "offloads",
            object: self.object(),
            wanted: wanted.to_string(),
            found: found.to_string(),
        })
    }

    /// Makes this end receive frames that XDP sends on the other end (`XDP_TX`, redirect), which a veth does only while
    /// it has NAPI, by attaching a program that passes everything. GRO would also enable NAPI, but then stops after the
    /// first few hundred frames.
    ///
    /// # Errors
    /// No permission to use BPF here (it needs root in the initial user namespace), or another program is attached.
    pub fn ensure_napi(&self) -> Result<NapiGuard, Error> {
        let pass = self.site.run(|| udpath_bpf::Pass::attach(self.name()))?;
        let pass = pass.map_err(|cause| Error::Napi { object: self.object(), cause })?;
        Ok(NapiGuard { _pass: pass })
    }

    /// Like [`ensure_napi`](Self::ensure_napi), but for as long as the interface exists: for kept labs, whose creator
    /// ends.
    ///
    /// # Errors
    /// The same as [`ensure_napi`](Self::ensure_napi).
    pub fn keep_napi(&self) -> Result<(), Error> {
        let program =
            udpath_bpf::PassProgram::load().map_err(|cause| Error::Napi { object: self.object(), cause })?;
        self.site
            .rtnl(|rtnl| rtnl.set_xdp(self.ifindex(), program.as_fd()))
            .map_err(|refused| Error::netlink(format!("attach an XDP program to {}", self.object()), refused))
    }

    /// `machine/interface`.
    fn object(&self) -> String {
        format!("{}/{}", self.end.machine, self.end.interface)
    }

    fn several_queues(&self) -> Result<(), Error> {
        if self.queues() == 1 { Err(Error::OneQueue { object: self.object() }) } else { Ok(()) }
    }
}
