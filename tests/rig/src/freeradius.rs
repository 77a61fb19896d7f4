//! FreeRADIUS as a peer: the configuration of a plain server, and its command line.

use std::fs;
use std::io;
use std::path::Path;

/// Where scripts/setup.sh unpacks the package: installed, it would start a server at each boot.
const ROOT: &str = "/var/cache/udpath/freeradius";
/// It logs this line once its sockets are open.
pub const FREERADIUS_READY: &str = "Ready to process requests";

/// Writes the configuration of a server into `folder`, with one secret for all clients and the users of the file
/// `users`. Returns its command line; it logs to stderr and stays in the foreground.
///
/// It answers access at port 1812 and accounting at 1813, over both families, with two threads. Rejects are not
/// delayed.
///
/// # Errors
/// The file cannot be written.
///
/// # Panics
/// The program was not unpacked.
pub fn freeradius(folder: &Path, secret: &str, users: &Path) -> io::Result<Vec<String>> {
    let program = format!("{ROOT}/usr/sbin/freeradius");
    assert!(Path::new(&program).exists(), "no {program}: scripts/setup.sh unpacks it");
    let shown = |path: &Path| path.display().to_string();
    let configuration = include_str!("freeradius/radiusd.conf")
        .replace("LIBRARIES", &format!("{ROOT}/usr/lib/freeradius"))
        .replace("SECRET", secret)
        .replace("USERS", &shown(users))
        .replace("FOLDER", &shown(folder));
    fs::write(folder.join("radiusd.conf"), configuration)?;
    let command = ["sh", "-c", "exec \"$@\" >&2", "sh", &program, "-f", "-l", "stdout", "-d"];
    Ok(command.into_iter().map(String::from).chain([shown(folder)]).collect())
}
