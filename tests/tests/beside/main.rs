//! The whole program beside others for a long time: what Prometheus, Ansible and NATS do with it, and policies,
//! instances and signals, whose tests follow one another (`udpath_rig::alone`) since each looks at what is left. All
//! wait more than they compute, and compare no times, so that they run while emulated machines keep the CPUs busy
//! (scripts/test.sh).

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod alerts;
mod ansible;
mod fleet;
mod multiply;
mod policy;
mod signals;
