//! Settings on real traffic: each is applied to a machine where a real nsd or knotd answers real queries, read back, seen
//! to do what it is for by the kernel's own counts, and undone until every setting is as before, byte by byte. Needs root
//! and two CPUs.
//!
//! | setting | what is counted |
//! |---|---|
//! | RPS | how often one CPU was handed packets by another (softnet) |
//! | RFS | the same, of one packet each: they follow the thread that reads |
//! | XPS | packets of each transmit queue (qdisc) |
//! | channels, features | packets of each receive queue's NAPI (the driver) |
//! | NAPI threads | the CPU time of the kernel's threads |
//! | qdisc | packets of the qdisc |
//! | sysctls | the ports that new sockets get |
//! | receive buffer | datagrams dropped of a burst |
//! | incoming CPU, selection | what waits at each socket |
//! | threads | the CPU they ran on |

mod network;
mod place;
mod server;
mod settled;
