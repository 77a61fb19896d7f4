//! The service of docs/tutorial.md: answers a number with its square.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::io::Read;

use udpath_serve::{Config, DropReason, Outcome, Reply, Request, Server, Service};

struct Squares;

impl Service for Squares {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        // 12 bytes of the client's own choice, and a number of 8 bytes.
        let Some((tag, [a, b, c, d, e, f, g, h])) = request.payload().split_first_chunk::<12>() else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let number = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
        let mut answer = [0; 20];
        answer[..12].copy_from_slice(tag);
        answer[12..].copy_from_slice(&number.wrapping_mul(number).to_be_bytes());
        reply.write(&answer)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(io), Some(bind)) = (arguments.next(), arguments.next()) else {
        return Err("usage: squares IO ADDR:PORT".into());
    };
    let config = Config { io: io.parse()?, ..Config::new([bind.parse()?]) };
    let server = Server::start(&config, |_worker| Squares)?;
    eprintln!("ready io={} bind={}; end the input to stop", server.io(), server.binds()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let total = server.stop()?.total;
    println!("{} received, {} answered", total.received, total.answered);
    Ok(())
}
