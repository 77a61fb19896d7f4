//! Intercepts all changes: counts the writes, and lets the test decide about each.

use std::cell::Cell;
use std::fmt;

use udpath_host::Source;
use udpath_host::process::{Error, Server};
use udpath_tune::machine::{Identity, Lost, Refusal};
use udpath_tune::{Machine, Setting, Value};

/// A write that is about to happen.
pub(crate) struct Call<'a> {
    /// How many writes came before it.
    pub(crate) at: usize,
    /// The setting.
    pub(crate) setting: &'a Setting,
    machine: &'a dyn Machine,
    value: &'a Value,
}

impl Call<'_> {
    /// Performs the write.
    pub(crate) fn pass(&self) -> Result<(), Refusal> {
        self.machine.write(self.setting, self.value)
    }

    /// The kernel's error for this errno.
    pub(crate) fn refused(&self, errno: i32) -> Result<(), Refusal> {
        Err(Refusal::kernel("set", self.setting, &std::io::Error::from_raw_os_error(errno)))
    }
}

/// The result of a write.
type Decide<'a> = Box<dyn Fn(&Call<'_>) -> Result<(), Refusal> + 'a>;

/// A machine whose writes are intercepted.
pub(crate) struct Door<'a> {
    machine: &'a dyn Machine,
    decide: Decide<'a>,
    /// Writes so far.
    pub(crate) writes: Cell<usize>,
}

impl<'a> Door<'a> {
    pub(crate) fn new(
        machine: &'a dyn Machine,
        decide: impl Fn(&Call<'_>) -> Result<(), Refusal> + 'a,
    ) -> Self {
        Self { machine, decide: Box::new(decide), writes: Cell::new(0) }
    }
}

impl fmt::Debug for Door<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a door of {:?}", self.machine)
    }
}

impl Machine for Door<'_> {
    fn source(&self) -> &dyn Source {
        self.machine.source()
    }

    fn read(&self, setting: &Setting) -> Result<Value, Refusal> {
        self.machine.read(setting)
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal> {
        let at = self.writes.replace(self.writes.get() + 1);
        (self.decide)(&Call { at, setting, machine: self.machine, value })
    }

    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal> {
        self.machine.identity(setting)
    }

    fn lost(&self, setting: &Setting) -> Option<Lost> {
        self.machine.lost(setting)
    }

    fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting> {
        self.machine.renamed(setting, identity)
    }

    fn irq(&self, setting: &Setting) -> Result<u32, Refusal> {
        self.machine.irq(setting)
    }

    fn serving(&self, port: u16) -> Result<Vec<Server>, Error> {
        self.machine.serving(port)
    }

    fn pending(&self, setting: &Setting, value: &Value) -> Option<String> {
        self.machine.pending(setting, value)
    }
}
