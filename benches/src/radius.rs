//! `udpath serve radius` against FreeRADIUS: transactions per second of clients that check every reply.
//!
//! udpath serves with one worker over AF_XDP, which auto selects there, and over kernel sockets; FreeRADIUS has two
//! threads on one CPU. The load is signed requests with PAP of the users in the file that both servers read. Both keep
//! their replies for 5 seconds. The beds are those of [`versus`].

use std::cell::Cell;
use std::path::Path;

use anyhow::{Context, Result};
use udpath_lab::Lab;
use udpath_protocols::radius::{LoadConfig, RadiusLoad, Secret, Users};
use udpath_rig::{FREERADIUS_READY, freeradius};

use crate::bed::{Running, serve, udpath};
use crate::results::Results;
use crate::versus::{self, SERVER_CPU, SOCKETS, UDPATH, address, compare_on};

/// Relative to FreeRADIUS's rate.
const AT_LEAST: f64 = 5.0;
const PORT: u16 = 1812;
const FREERADIUS: &str = "freeradius";
const SECRET: &str = "a secret of the lab";
/// Users in the file: each run asks for all of them.
const USERS: usize = 1000;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the servers' files")?;
    let file = |name: &str| folder.path().join(name);
    let users =
        (0..USERS).map(|n| format!("user{n}  Cleartext-Password := \"password {n}\"\n")).collect::<String>();
    std::fs::write(file("users"), &users).context("cannot write the file of users")?;
    let clients = format!("0.0.0.0/0 \"{SECRET}\"\n");
    std::fs::write(file("clients"), clients).context("cannot write the file of clients")?;
    let users = Users::parse(users.as_bytes()).map_err(anyhow::Error::msg)?;
    let secret = Secret::new(SECRET.as_bytes());
    let config = LoadConfig { secret, users, ..LoadConfig::default() };

    let lab = versus::lab("bench-radius", &[UDPATH, SOCKETS, FREERADIUS])?;
    let [clients, users] = ["clients", "users"].map(|name| file(name).display().to_string());
    let ours = |machine: &str, io: &str| -> Result<Running> {
        let bind = address(&lab, machine, PORT)?.to_string();
        let arguments =
            ["serve", "radius", "--bind", &bind, "--io", io, "--workers", "1", "--cpus", SERVER_CPU];
        let files = ["--clients", &clients, "--users", &users];
        serve(&lab, machine, &udpath()?, &[&arguments[..], &files].concat())
    };
    let servers =
        [ours(UDPATH, "xdp")?, ours(SOCKETS, "shared")?, peer(&lab, folder.path(), &file("users"))?];
    // Each run has its own number, so that no request is a repetition.
    let number = Cell::new(u64::from(std::process::id()) << 32);
    for (id, own, of) in [
        ("radius.freeradius", UDPATH, "serve radius"),
        ("radius.sockets", SOCKETS, "serve radius over kernel sockets"),
    ] {
        let what = format!("{of} / FreeRADIUS, PAP, one server core");
        let compared = compare_on(own, &what, FREERADIUS, |machine| {
            number.set(number.get() + 1);
            let protocol = RadiusLoad::new(number.get(), config.clone());
            Ok(versus::run(&lab, address(&lab, machine, PORT)?, &protocol)?.tps)
        })?;
        results.add(&compared.claim(id, &what, AT_LEAST));
    }
    drop(servers);
    lab.down()?;
    Ok(())
}

fn peer(lab: &Lab, folder: &Path, users: &Path) -> Result<Running> {
    let words = freeradius(folder, SECRET, users).context("cannot write FreeRADIUS's configuration")?;
    versus::start(lab, FREERADIUS, words, FREERADIUS_READY)
}
