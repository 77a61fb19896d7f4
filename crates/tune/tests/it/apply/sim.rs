//! An in-memory machine, and ways to break it.
//!
//! One interface with channels, per-queue steering and a driver that loses its queues' settings when their number
//! changes; some sysctls; a server's sockets and a thread. A dying program leaves behind only the machine and the
//! journal's files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use udpath_host::source::{Answer, Question};
use udpath_host::{Absence, Fact, Source};
use udpath_tune::machine::{Identity, Lost, Machine, Refusal};
use udpath_tune::settings::Phase;
use udpath_tune::{Setting, Value};

use crate::door::{Call, Door};

/// The pid of irqbalance, if it runs.
const IRQBALANCE: u32 = 77;
/// The IRQ of the first queue, if it has one.
pub(crate) const IRQ: u32 = 57;

/// The values of all settings.
pub(crate) type Values = BTreeMap<String, String>;

/// The machine. Clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct Sim {
    values: Rc<RefCell<Values>>,
    /// The server has a program of its own on its group, until another selection is set.
    program: Rc<Cell<bool>>,
    /// irqbalance runs, and moves the IRQ of each queue to this CPU at each change of a ring.
    balanced: Rc<Cell<Option<u32>>>,
}

impl Sim {
    /// With four queues, some of them already steered.
    pub(crate) fn new() -> Self {
        let sim = Self { values: Rc::default(), program: Rc::default(), balanced: Rc::default() };
        sim.queues(4);
        for (name, value) in [
            ("eth0:channels/combined", "4"),
            ("eth0:rps/rx-3", "1"),
            ("eth0:xps/tx-0", "1"),
            ("eth0:xps/tx-3", "2-3"),
            ("eth0:rfs/rx-0", "256"),
            ("eth0:napi/threaded", "off"),
            ("sysctl:net.core.rmem_max", "212992"),
            ("sysctl:net.ipv4.udp_mem", "1 2 3"),
            ("sysctl:net.ipv4.conf.all.rp_filter", "1"),
            ("socket:812/4026:receive-buffer", "212992"),
            ("group:812/4026:selection", "by-flow"),
            ("thread:812/815:affinity", "0-1"),
        ] {
            sim.put(name, value);
        }
        sim
    }

    /// All values.
    pub(crate) fn values(&self) -> Values {
        self.values.borrow().clone()
    }

    /// Another program sets it.
    pub(crate) fn put(&self, name: &str, value: &str) {
        self.values.borrow_mut().insert(name.to_owned(), value.to_owned());
    }

    /// Removes a setting.
    pub(crate) fn remove(&self, name: &str) {
        self.values.borrow_mut().remove(name);
    }

    /// The server attaches a program of its own to its group.
    pub(crate) fn attach(&self) {
        self.program.set(true);
    }

    /// Is it still attached?
    pub(crate) fn attached(&self) -> bool {
        self.program.get()
    }

    /// irqbalance runs; it was told to leave no IRQ alone. The interface has a ring, and an IRQ for its first queue.
    pub(crate) fn balance(&self, cpu: u32) {
        self.balanced.set(Some(cpu));
        for (name, value) in [("irqbalance:ban", "none"), ("eth0:ring/rx", "256"), ("eth0:irq/rx-0", "0")] {
            self.put(name, value);
        }
    }

    /// The server exits, and its settings are gone.
    pub(crate) fn end_server(&self) {
        self.values.borrow_mut().retain(|name, _| !name.contains(":812/"));
    }

    /// Queues appear with nothing set and lose everything when they disappear.
    fn queues(&self, count: u32) {
        let mut values = self.values.borrow_mut();
        let number = |name: &str| name.rsplit_once("x-").and_then(|(_, queue)| queue.parse::<u32>().ok());
        values.retain(|name, _| number(name).is_none_or(|queue| queue < count));
        for queue in 0..count {
            for (name, none) in [("rps/rx", "none"), ("rfs/rx", "0"), ("xps/tx", "none")] {
                let name = format!("eth0:{name}-{queue}");
                // This driver loses the steering of all its queues.
                values.insert(name, none.to_owned());
            }
        }
    }

    fn refuse(operation: &'static str, setting: &Setting, errno: i32) -> Refusal {
        Refusal::kernel(operation, setting, &std::io::Error::from_raw_os_error(errno))
    }
}

impl Source for Sim {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let balanced = path == format!("/proc/{IRQBALANCE}/comm") && self.balanced.get().is_some();
        balanced.then(|| "irqbalance\n".to_owned()).ok_or(Absence::NotThere)
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        if directory == "/proc" && self.balanced.get().is_some() {
            return Ok(vec![IRQBALANCE.to_string()]);
        }
        if directory != "/sys/class/net/eth0/queues" {
            return Err(Absence::NotThere);
        }
        let values = self.values.borrow();
        Ok(values
            .keys()
            .filter_map(|name| name.strip_prefix("eth0:")?.split_once('/'))
            .filter(|(kind, _)| matches!(*kind, "rps" | "xps"))
            .map(|(_, queue)| queue.to_owned())
            .collect())
    }

    fn target(&self, path: &str) -> Result<String, Absence> {
        let balanced = path == format!("/proc/{IRQBALANCE}/exe") && self.balanced.get().is_some();
        balanced.then(|| "/usr/sbin/irqbalance".to_owned()).ok_or(Absence::NotThere)
    }

    fn ask(&self, _: &Question) -> Result<Fact<Answer>, Absence> {
        Err(Absence::NotThere)
    }
}

impl Machine for Sim {
    fn source(&self) -> &dyn Source {
        self
    }

    fn read(&self, setting: &Setting) -> Result<Value, Refusal> {
        let text = self.values.borrow().get(&setting.to_string()).cloned();
        let text = text.ok_or_else(|| Self::refuse("read", setting, libc::ENOENT))?;
        if setting.assumed().is_some() {
            return Ok(Value::Unknown);
        }
        Ok(setting.value(&text).unwrap())
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal> {
        self.read(setting)?;
        if let (Phase::Channels, Value::Number(count)) = (setting.phase(), value) {
            self.queues(u32::try_from(*count).unwrap());
        }
        if setting.to_string().ends_with(":selection") {
            self.program.set(false);
        }
        if let (true, Some(cpu)) = (setting.to_string().contains(":ring/"), self.balanced.get()) {
            self.put("eth0:irq/rx-0", &cpu.to_string());
        }
        self.put(&setting.to_string(), &value.to_string());
        Ok(())
    }

    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal> {
        Ok(match setting {
            Setting::Interface(..) => Some(Identity::Device(3)),
            Setting::Socket { .. } | Setting::Thread { .. } => {
                self.read(setting)?;
                Some(Identity::Sockets(vec![17, 18]))
            }
            _ => None,
        })
    }

    fn lost(&self, setting: &Setting) -> Option<Lost> {
        let program = setting.to_string().ends_with(":selection") && self.attached();
        program.then(|| Lost { seen: true, words: "replaces what undo cannot restore".to_owned() })
    }

    fn renamed(&self, _: &Setting, _: &Identity) -> Option<Setting> {
        None
    }

    fn irq(&self, setting: &Setting) -> Result<u32, Refusal> {
        match self.balanced.get() {
            Some(_) => Ok(IRQ),
            None => Err(Refusal::because("find", setting, "there is none")),
        }
    }

    fn pending(&self, _: &Setting, _: &Value) -> Option<String> {
        None
    }
}

/// The fault at a counted write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The kernel rejects the write with this errno.
    Refuses(i32),
    /// The kernel reports success and does nothing.
    Ignores,
    /// The program dies before the write.
    DiesBefore,
    /// The program dies after the write.
    DiesAfter,
}

/// A machine whose n-th write fails.
pub(crate) fn faulty(sim: &Sim, at: usize, fault: Fault) -> Door<'_> {
    Door::new(sim, move |call| if call.at == at { fault.strike(call) } else { call.pass() })
}

/// The same, and all writes after it as well.
pub(crate) fn faulty_from(sim: &Sim, at: usize, fault: Fault) -> Door<'_> {
    Door::new(sim, move |call| if call.at >= at { fault.strike(call) } else { call.pass() })
}

/// The payload of an intentional panic.
pub(crate) struct Death;

impl Fault {
    fn strike(self, call: &Call<'_>) -> Result<(), Refusal> {
        match self {
            Self::Refuses(errno) => call.refused(errno),
            Self::Ignores => Ok(()),
            Self::DiesBefore => std::panic::resume_unwind(Box::new(Death)),
            Self::DiesAfter => {
                call.pass()?;
                std::panic::resume_unwind(Box::new(Death))
            }
        }
    }
}
