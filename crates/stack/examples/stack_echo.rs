//! Answers UDP over AF_XDP with one thread, from one queue of an interface, until its input ends. Needs root.
//!
//! ```text
//! cargo run --release -p udpath-stack --example stack_echo -- eth0 10.0.0.2:7
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::xdp::{Config, XdpDevice};
use udpath_stack::worker::{Parts, Worker};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(bind)) = (arguments.next(), arguments.next()) else {
        return Err("usage: stack_echo IFACE ADDR:PORT".into());
    };
    let bind: SocketAddr = bind.parse()?;
    // What its program does not take goes to the kernel, as before.
    let mut device = XdpDevice::open(&interface, Config::default())?;
    device.bind(bind)?;
    let domain = Domain::new(1, 8);
    let mut answered = 0_u64;
    let mut worker = Worker::new(Parts {
        port: Some(device.port(0)?),
        handler: |datagram: Datagram<'_>, reply: &mut [u8]| {
            answered += 1;
            reply[..datagram.payload.len()].copy_from_slice(datagram.payload);
            Outcome::Reply(datagram.payload.len())
        },
        reader: domain.register("worker 0")?,
        groups: Arc::new(Table::new(&domain, Groups::new(&[bind], [])?)),
        rings: mesh(1, mesh::Config { backlog: 64, frames: 4096 })?.remove(0),
        steering: None,
    });
    let stop = AtomicBool::new(false);
    eprintln!("ready {bind} on queue 0 of {interface}; end the input to stop");
    thread::scope(|scope| {
        scope.spawn(|| {
            // An error ends it as well.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            if worker.poll() == 0 {
                worker.wait(Duration::from_millis(100), None)?;
            }
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    drop(worker);
    println!("{answered} answered");
    Ok(())
}
