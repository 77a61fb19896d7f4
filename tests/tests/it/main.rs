//! The whole program, but for the tests of `alone` and those in emulated machines (`boots`, `vm`).

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod batch;
mod boost;
mod capacity;
mod compare;
mod deploy;
mod dns;
mod dns_load;
mod dns_oracle;
mod escapes;
mod examples;
mod export;
mod habits;
mod history;
mod hostile;
mod inside;
mod load_lab;
mod looking;
mod mix;
mod ntp;
mod peers;
mod predict;
mod privileges;
mod radius;
mod results;
mod segments;
mod services;
mod settings;
mod show;
mod slow_clients;
mod snmp;
mod support;
mod target;
mod top;
mod tutorial;
mod untrusted;
mod verdicts;
mod verify;
mod xdp;
