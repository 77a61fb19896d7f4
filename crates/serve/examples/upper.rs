//! The smallest whole server: answers in upper case until its input ends.
//!
//! ```text
//! cargo run --release -p udpath-serve --example upper -- 127.0.0.1:7777 reuseport 32 2
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::env;
use std::error::Error;
use std::io::Read;

use udpath_serve::{Config, Outcome, Reply, Request, Server, Service};

struct Upper;

impl Service for Upper {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let refused = reply.write(request.payload());
        let len = reply.len();
        reply.buffer_mut()[..len].make_ascii_uppercase();
        refused
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut config =
        Config::new([arguments.next().ok_or("usage: upper ADDR:PORT [IO [BATCH [WORKERS]]]")?.parse()?]);
    if let Some(io) = arguments.next() {
        config.io = io.parse()?;
    }
    if let Some(batch) = arguments.next() {
        config.batch = batch.parse()?;
    }
    if let Some(workers) = arguments.next() {
        config.workers = Some(workers.parse()?);
    }
    let server = Server::start(&config, |_worker| Upper)?;
    eprintln!("ready {} at {:?}; end the input to stop", server.io(), server.binds());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let status = server.stop()?;
    println!("{} received, {} answered", status.total.received, status.total.answered);
    Ok(())
}
