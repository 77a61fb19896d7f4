//! Rule sets in the path of one machine of a lab, loaded by `nft`. They end with the machine.

use std::io::{ErrorKind, Write};
use std::process::{Output, Stdio};

use udpath_lab::Lab;

/// Loads a rule set on a machine; the error is the reason, as a sentence, why cases on it are missing.
pub(crate) fn load(lab: &Lab, machine: &str, rules: &str) -> Result<(), String> {
    let output = run(lab, machine, rules)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("no message");
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("nft rejected the rule set of {machine}: {first}"))
    }
}

fn run(lab: &Lab, machine: &str, rules: &str) -> Result<Output, String> {
    let mut command = lab.machine(machine).map_err(|error| error.to_string())?.command("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "nft not found; install it (Debian: apt-get install nftables)".to_owned(),
        _ => format!("cannot run nft: {error}"),
    })?;
    let written = nft.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(rules.as_bytes()));
    let output = nft.wait_with_output().map_err(|error| format!("cannot wait for nft: {error}"))?;
    // A rule set that is rejected may not be read to its end; then the message of nft says why.
    match written {
        Err(error) if output.status.success() => Err(format!("cannot write to nft: {error}")),
        _ => Ok(output),
    }
}
