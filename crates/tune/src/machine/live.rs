//! This machine, as the calling thread sees it: its network namespace, its /sys, its /proc.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Identity, Lost, Machine, Refusal, file, irqbalance, irqs, process, queue_irqs};
use crate::conflicts;
use crate::device::DeviceWriter;
use crate::policy::{self, Effect, spread};
use crate::services::{self, changeable};
use crate::settings::{Access, Cost, Item, Part, Setting, Value};
use crate::units::{self, setting as instances};
use udpath_files::{kernel, owners};
use udpath_host::Source;
use udpath_host::process::{Error, Server, SocketSetting, SocketValue};
use udpath_host::source::{Folder, number};

/// IRQs of receive queues, or why there are none.
type QueueIrqs = Result<BTreeMap<u32, u32>, String>;

/// This machine; or a captured folder, whose files are all there is.
#[derive(Debug)]
pub struct Live {
    root: PathBuf,
    source: Folder,
    /// Writes over netlink and ioctl; `None` for a captured folder.
    writer: Option<RefCell<DeviceWriter>>,
    /// By interface, until a driver resets: with some drivers finding them requires a scan of all interfaces.
    irqs: RefCell<BTreeMap<String, QueueIrqs>>,
}

impl Live {
    /// This machine, in the calling thread's network namespace.
    #[must_use]
    pub fn new() -> Self {
        let writer = Some(RefCell::new(DeviceWriter::open()));
        Self { root: PathBuf::from("/"), source: Folder::live(), writer, irqs: RefCell::default() }
    }

    /// A captured machine. Its files can be written, and behave as plain files.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), source: Folder::captured(root), writer: None, irqs: RefCell::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Resolves a queue's IRQ to the IRQ itself.
    fn meant(&self, operation: &'static str, setting: &Setting) -> Result<Setting, Refusal> {
        let (Setting::Interface(interface, Item { part: Part::Queue(queue), .. }), Access::QueueIrq) =
            (setting, setting.row().access)
        else {
            return Ok(setting.clone());
        };
        let index = ifindex(&self.source, interface).ok_or_else(|| gone(setting, "no such interface"))?;
        let mut known = self.irqs.borrow_mut();
        let irqs = known
            .entry(interface.clone())
            .or_insert_with(|| queue_irqs::of_interface(&self.source, interface, index))
            .as_ref()
            .map_err(|why| Refusal::because(operation, setting, why))?;
        match irqs.get(queue) {
            Some(irq) => Ok(Setting::Irq(*irq)),
            None if irqs.is_empty() => Err(Refusal::because(operation, setting, "its queues have no IRQs")),
            None => Err(gone(setting, "no such queue, or it has no IRQ")),
        }
    }

    /// The inode of an interface's directory in sysfs.
    fn device(&self, interface: &str) -> Option<u64> {
        fs::metadata(self.path(&format!("/sys/class/net/{interface}"))).ok().map(|directory| directory.ino())
    }

    /// Write access over netlink and ioctl.
    fn writer(&self, setting: &Setting) -> Result<std::cell::RefMut<'_, DeviceWriter>, Refusal> {
        let writer = self.writer.as_ref().map(RefCell::borrow_mut);
        writer.ok_or_else(|| Refusal::because("set", setting, "a captured machine cannot be changed"))
    }
}

impl Live {
    /// The effect of a policy that sets something.
    fn effect(&self, setting: &Setting, value: &Value) -> Option<Effect> {
        let Setting::Policy { target, option } = setting else { return None };
        let value = value.for_policy()??;
        self.writer.is_some().then(|| policy::effect(&self.source, target, *option, value))
    }
}

/// The index of an interface.
fn ifindex(source: &dyn Source, interface: &str) -> Option<u32> {
    number(source, &format!("/sys/class/net/{interface}/ifindex")).ok()
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for Live {
    fn source(&self) -> &dyn Source {
        &self.source
    }

    fn read(&self, setting: &Setting) -> Result<Value, Refusal> {
        let meant = self.meant("read", setting)?;
        let failed = |error: io::Error| Refusal::kernel("read", setting, &error);
        match (meant.row().access, meant.target()) {
            (Access::File(path, form), _) => {
                let text = kernel::text(self.path(&path(&meant))).map_err(failed)?;
                return form.read(&text).map_err(|why| Refusal::because("read", setting, why));
            }
            (Access::Driver { read, .. }, Some(target)) => return read(&target, &self.source),
            _ => {}
        }
        match &meant {
            Setting::File(path) | Setting::Config(path) => {
                file::read_whole(&self.path(path)).map(Value::File).map_err(failed)
            }
            Setting::Spread { unit, port } => {
                let path = spread::drop_in(unit, *port);
                let text = file::read_whole(&self.path(&path)).map_err(failed)?;
                spread::value(&path, text.as_deref()).map_err(|why| Refusal::because("read", setting, why))
            }
            Setting::Instances { unit } => {
                let path = units::drop_in(unit);
                let text = file::read_whole(&self.path(&path)).map_err(failed)?;
                instances::value(&path, text.as_deref()).map_err(|why| Refusal::because("read", setting, why))
            }
            // Which configuration a running server has read, nothing shows.
            Setting::Restart(_) => Ok(Value::Unknown),
            Setting::Thread { .. }
            | Setting::Socket { .. }
            | Setting::IrqbalanceBan
            | Setting::Policy { .. }
                if self.writer.is_none() =>
            {
                Err(Refusal::because("read", setting, "a captured machine has no running processes"))
            }
            Setting::Policy { target, option } => policy::read(&self.source, target, *option)
                .map_err(|why| Refusal::because("read", setting, why)),
            Setting::Thread { pid, tid } => process::affinity(setting, *pid, *tid),
            Setting::Socket { pid, inode, setting: of } => process::option(setting, *pid, *inode, *of),
            Setting::IrqbalanceBan => {
                let pid = conflicts::irqbalance(&self.source)
                    .ok_or_else(|| Refusal::because("read", setting, "irqbalance is not running"))?;
                irqbalance::banned(pid).map(Value::Irqs).map_err(failed)
            }
            Setting::Interface(..) | Setting::Irq(_) | Setting::Sysctl(_) => {
                unreachable!("set through files or the driver")
            }
        }
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal> {
        let meant = self.meant("set", setting)?;
        if setting.cost() == Cost::ResetsLink {
            self.irqs.borrow_mut().clear();
        }
        let failed = |error: io::Error| Refusal::kernel("set", setting, &error);
        let other = || Refusal::because("set", setting, format!("'{value}' is not a value of it"));
        match (meant.row().access, meant.target()) {
            (Access::File(path, form), _) => {
                let text = form.write(value).ok_or_else(other)?;
                return kernel::write(self.path(&path(&meant)), &text).map_err(failed);
            }
            (Access::Driver { write, .. }, Some(target)) => {
                return write(&target, &mut *self.writer(setting)?, value);
            }
            _ => {}
        }
        match (&meant, value) {
            (Setting::File(path), Value::File(text)) => {
                file::write_whole(&self.path(path), text.as_deref()).map_err(failed)
            }
            (Setting::Config(path), Value::File(text)) => {
                let path = self.path(path);
                // A folder may have changed hands since it was planned, and an undo comes days later.
                if self.writer.is_some() {
                    let only = owners::only_root_writes(&path);
                    only.map_err(|why| Refusal::because("set", setting, changeable(&why)))?;
                }
                file::write_whole(&path, text.as_deref()).map_err(failed)
            }
            (Setting::Restart(restart), value) => {
                drop(self.writer(setting)?);
                restart.run(services::instances(value)).map_err(|why| Refusal::because("set", setting, why))
            }
            (Setting::Thread { pid, tid }, value) => {
                drop(self.writer(setting)?);
                process::set_affinity(setting, *pid, *tid, value)
            }
            (Setting::Socket { pid, inode, setting: of }, value) => {
                drop(self.writer(setting)?);
                process::set_option(setting, *pid, *inode, *of, value)
            }
            (Setting::Policy { target, option }, value) => {
                drop(self.writer(setting)?);
                let value = value.for_policy().ok_or_else(other)?;
                policy::write(&self.source, target, *option, value)
                    .map_err(|why| Refusal::because("set", setting, why))
            }
            (Setting::Spread { unit, port }, value) => {
                drop(self.writer(setting)?);
                let because = |why| Refusal::because("set", setting, why);
                let text = match value.for_socket(SocketSetting::Selection) {
                    Some(SocketValue::Selection(rule)) => {
                        Some(spread::text(unit, *port, rule).map_err(because)?)
                    }
                    _ if *value == Value::Unset => None,
                    _ => return Err(other()),
                };
                file::write_whole(&self.path(&spread::drop_in(unit, *port)), text.as_deref())
                    .map_err(failed)?;
                spread::reload(&self.source).map_err(because)
            }
            (Setting::Instances { unit }, value) => {
                drop(self.writer(setting)?);
                let options = match value {
                    Value::Words(options) => Some(options.as_str()),
                    Value::Unset => None,
                    _ => return Err(other()),
                };
                instances::write(&self.source, &self.path(&units::drop_in(unit)), unit, options)
                    .map_err(|why| Refusal::because("set", setting, why))
            }
            (Setting::IrqbalanceBan, Value::Irqs(irqs)) => {
                drop(self.writer(setting)?);
                let pid = conflicts::irqbalance(&self.source)
                    .ok_or_else(|| Refusal::because("set", setting, "irqbalance is not running"))?;
                irqbalance::ban(pid, irqs).map_err(failed)
            }
            _ => Err(other()),
        }
    }

    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal> {
        match setting {
            Setting::Interface(interface, _) => {
                let found = self.device(interface).map(Identity::Device);
                found.map(Some).ok_or_else(|| gone(setting, "no such interface"))
            }
            Setting::Thread { .. } | Setting::Socket { .. } if self.writer.is_none() => Ok(None),
            Setting::Thread { pid, tid } => process::thread(setting, *pid, *tid).map(Some),
            Setting::Socket { pid, inode, setting: of } => {
                process::sockets(setting, *pid, *inode, *of).map(Some)
            }
            Setting::Restart(_) if self.writer.is_none() => Ok(None),
            Setting::Restart(restart) => Ok(restart.serving().into_iter().next()),
            Setting::IrqbalanceBan => {
                let found = conflicts::irqbalance(&self.source).map(Identity::Pid);
                found.map(Some).ok_or_else(|| gone(setting, "irqbalance is not running"))
            }
            Setting::Irq(irq) => Ok(irqs::identity(&self.source, *irq)),
            Setting::Sysctl(_)
            | Setting::File(_)
            | Setting::Config(_)
            | Setting::Policy { .. }
            | Setting::Spread { .. }
            | Setting::Instances { .. } => Ok(None),
        }
    }

    fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting> {
        let wanted = match (identity, setting) {
            (Identity::Device(wanted), _) => wanted,
            (Identity::Sockets(cookies), Setting::Socket { setting: of, .. }) => {
                return process::held(&self.source, cookies, *of);
            }
            (Identity::Irq { .. }, Setting::Irq(_)) => {
                return irqs::find(&self.source, identity).map(Setting::Irq);
            }
            _ => return None,
        };
        let names = self.source.names("/sys/class/net").ok()?;
        let name = names.into_iter().find(|name| self.device(name) == Some(*wanted))?;
        Some(setting.renamed(&name))
    }

    fn irq(&self, setting: &Setting) -> Result<u32, Refusal> {
        match self.meant("find", setting)? {
            Setting::Irq(irq) => Ok(irq),
            _ => Err(Refusal::because("find", setting, "it is not an IRQ")),
        }
    }

    fn serving(&self, port: u16) -> Result<Vec<Server>, Error> {
        match self.writer {
            Some(_) => udpath_host::process::serving(&self.source, port),
            None => Err(Error::NobodyServes { port }),
        }
    }

    fn lost(&self, setting: &Setting) -> Option<Lost> {
        match setting {
            Setting::Socket { pid, inode, setting: SocketSetting::Selection } if self.writer.is_some() => {
                process::lost(*pid, *inode)
            }
            _ => None,
        }
    }

    fn broken(&self, setting: &Setting, value: &Value) -> Option<String> {
        if let Setting::Socket { pid, inode, setting: SocketSetting::Selection } = setting {
            return self.writer.is_some().then(|| process::broken(*pid, *inode))?;
        }
        match self.effect(setting, value)? {
            Effect::Broken(why) => Some(why),
            Effect::Full | Effect::Unseen(_) | Effect::Later(_) => None,
        }
    }

    fn pending(&self, setting: &Setting, value: &Value) -> Option<String> {
        if let Setting::Spread { unit, port } = setting {
            let has = self.writer.is_some() && *value != Value::Unset;
            return has.then(|| spread::pending(self, unit, *port, value))?;
        }
        if let Setting::Instances { unit } = setting {
            return self.writer.is_some().then(|| instances::pending(&self.source, unit, value))?;
        }
        if let Some(effect) = self.effect(setting, value) {
            return match effect {
                Effect::Full => None,
                Effect::Unseen(why) | Effect::Later(why) | Effect::Broken(why) => Some(why),
            };
        }
        let irq = self.irq(setting).ok()?;
        let path = format!("/proc/irq/{irq}/effective_affinity_list");
        let effective =
            self.source.text(&path).ok().and_then(|text| text.parse::<udpath_steer::CpuSet>().ok())?;
        let moved = effective.is_empty() || value.cpus().is_none_or(|cpus| effective.is_subset(cpus));
        (!moved).then(|| {
            format!("takes effect at the IRQ's next interrupt; until then CPU {effective} handles it")
        })
    }
}

fn gone(setting: &Setting, why: &str) -> Refusal {
    Refusal { errno: Some(libc::ENODEV), ..Refusal::because("find", setting, why) }
}
