//! Units of systemd whose program runs in several instances: what a unit says, and what is written for its instances.
//!
//! ```text
//!  unit:ntp.service/instances=2
//!    └─▸ /etc/systemd/system/ntp.service.d/udpath-instances.conf      a drop-in: setting.rs, through the journal
//!           ExecStart=+udpath multiply ntp.service --unit -n 2 -- chronyd -x -d
//!    ─▸ systemctl restart ntp.service                                 now and at each boot
//!           udpath_multiply: its supervisor
//!             └─▸ /run/systemd/system/udpath-ntp@1.service, ...       original.rs: all of [Service], one CPU, and a
//!                                                                     configuration where instances must differ
//! ```
//! The unit keeps its name, dependencies and place in the boot; its user, sandbox, limits and kind of start are those
//! of each instance. `file.rs` reads files of units. `manager.rs` asks systemd.

mod file;
pub(crate) mod manager;
mod original;
pub(crate) mod setting;

pub(crate) use file::drop_in;
pub use manager::{main_pid, processes_of, result, systemctl};
pub use original::{Instance, Original, instance_name};
pub use setting::value_of;
