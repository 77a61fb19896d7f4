//! The whole program beside others for a long time: what Prometheus, Ansible and NATS do with it. These tests wait more than they
//! compute, and compare no times, so that they run while emulated machines keep the CPUs busy (scripts/test.sh).

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod alerts;
mod ansible;
mod fleet;
