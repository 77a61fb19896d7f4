//! Records what the kernel answers to everything that udpath asks over netlink, byte for byte: for fixtures.
//!
//! ```text
//! record_netlink FOLDER IFACE...     FOLDER/generic.netlink, FOLDER/route.netlink
//! ```

#![allow(clippy::disallowed_methods, reason = "a program of tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of tests")]

#[path = "../../../crates/netlink/tests/recording/mod.rs"]
mod recording;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use recording::{Answers, Conversation, read_route};
use udpath_netlink::Protocol;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, interfaces @ ..] = &arguments[..] else {
        eprintln!("record_netlink: give FOLDER and IFACE...");
        return ExitCode::FAILURE;
    };
    match record(Path::new(folder), interfaces) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("record_netlink: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(folder: &Path, interfaces: &[String]) -> Result<(), Box<dyn Error>> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    let (answers, generic) = Conversation::record(Protocol::Generic, |socket| Answers::read(socket, &names))?;
    let ((links, qdiscs), route) = Conversation::record(Protocol::Route, read_route)?;
    let comment = format!("Linux {}, {}", release.trim(), names.join(" "));
    fs::write(folder.join("generic.netlink"), generic.text(&comment))?;
    fs::write(folder.join("route.netlink"), route.text(&comment))?;
    println!("{answers:#?}\n{links:#?}\n{qdiscs:#?}");
    Ok(())
}
