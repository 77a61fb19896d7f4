//! Which receive queue of a network card gets a client's datagrams, by its source port.
//!
//! ```text
//! cargo run -p udpath-steer --example which_queue -- 192.0.2.7 10.0.0.2:53 4
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use udpath_steer::Flow;
use udpath_steer::rss::{IndirectionTable, Rss};
use udpath_steer::toeplitz::Key;

/// Entries of the table that most drivers have.
const ENTRIES: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(client), Some(server), Some(queues)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: which_queue CLIENT SERVER:PORT QUEUES".into());
    };
    let (client, server): (IpAddr, SocketAddr) = (client.parse()?, server.parse()?);
    let rss = Rss::new(Key::microsoft());
    let table = IndirectionTable::spread(ENTRIES, queues.parse()?)?;
    for port in 40_000..40_008 {
        let flow = Flow::udp(SocketAddr::new(client, port), server)?;
        let hash = rss.hash(&flow);
        println!("{flow}: hash {hash:#010x}, queue {}", table.queue(hash));
    }
    Ok(())
}
