//! The whole program, but for the tests of `alone` and those in emulated machines (`boots`, `vm`).

mod boost;
mod compare;
mod deploy;
mod dns;
mod dns_load;
mod export;
mod history;
mod inside;
mod load_lab;
mod mix;
mod ntp;
mod peers;
mod predict;
mod radius;
mod results;
mod segments;
mod services;
mod settings;
mod show;
mod snmp;
mod support;
mod target;
mod top;
mod tutorial;
mod verify;
mod xdp;
