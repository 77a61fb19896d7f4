//! Settings under real traffic: each is applied to a machine where a real nsd or knotd answers real queries, read
//! back, shown to take effect by the kernel's own counters, and undone until every setting is byte for byte as
//! before. Needs root and two CPUs.
//!
//! | setting | what is counted |
//! |---|---|
//! | RPS | how often a CPU received packets from another (softnet) |
//! | RFS | the same, with one packet each: they follow the thread that reads |
//! | XPS | packets of each transmit queue (qdisc) |
//! | channels, features | packets of each receive queue's NAPI (the driver) |
//! | NAPI threads | the CPU time of the kernel's NAPI threads |
//! | qdisc | packets of the qdisc |
//! | sysctls | the ports assigned to new sockets |
//! | receive buffer | datagrams dropped in a burst |
//! | incoming CPU, selection | bytes queued at each socket |
//! | threads | the CPU they ran on |

mod network;
mod place;
mod server;
mod settled;
