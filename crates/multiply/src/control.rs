//! The control socket of a supervisor: `control` in its folder, for root. One request on a line, one answer on a line.
//!
//! ```text
//!  ─▸ {"count":3}    ◂─ {"ok":STATUS}         once three serve, and no others are left
//!  ─▸ "status"       ◂─ {"ok":STATUS}
//!  ─▸ "stop"         ◂─ {"ok":STATUS}         once all have ended
//!                    ◂─ {"error":"..."}
//! ```

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::folder::{self, Claim, Folder};
use crate::{Error, Status};
use rustix::fs::Mode;

/// Most bytes of a request or an answer. A status has some 200 bytes for each instance.
const MAX_LINE: u64 = 1 << 20;
/// How long the supervisor waits for the line of a client that has connected. Longer: a client that sends none holds it
/// up.
const LINE: Duration = Duration::from_millis(200);
/// How long a client waits for the answer: longer than any start or drain.
const ANSWER: Duration = Duration::from_secs(600);

/// What a supervisor is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Another number of instances.
    Count(usize),
    /// What runs.
    Status,
    /// The end of all.
    Stop,
}

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ok(Box<Status>),
    Error(String),
}

/// Instances by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// They run.
    Running(Box<Status>),
    /// Their supervisor was killed; the next start of any takes back what is left.
    Left {
        /// Their name.
        name: String,
    },
    /// Their supervisor starts or ends, and does not answer.
    Silent {
        /// Their name.
        name: String,
        /// Its pid.
        pid: String,
    },
}

/// A client that waits for its answer.
#[derive(Debug)]
pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) fn answer(self, status: Status) {
        self.write(&Answer::Ok(Box::new(status)));
    }

    pub(crate) fn refuse(self, why: String) {
        self.write(&Answer::Error(why));
    }

    /// One that has gone needs no answer.
    fn write(mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_string(answer) {
            line.push('\n');
            let _ = self.0.write_all(line.as_bytes());
        }
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub(crate) struct Control(UnixListener);

impl Control {
    /// Listens in a folder, which is ours alone.
    pub(crate) fn listen(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("control");
        let made = UnixListener::bind(&path).and_then(|listener| {
            rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR)?;
            listener.set_nonblocking(true)?;
            Ok(Self(listener))
        });
        made.map_err(Error::system(format!("listen at {}", path.display())))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next request; `None` if there is none.
    pub(crate) fn next(&self) -> Option<(Client, Request)> {
        let (stream, _) = self.0.accept().ok()?;
        let client = Client(stream);
        match client.read() {
            Ok(request) => Some((client, request)),
            Err(error) => {
                client.refuse(format!("not a request: {error}"));
                None
            }
        }
    }
}

impl Client {
    fn read(&self) -> io::Result<Request> {
        self.0.set_nonblocking(false)?;
        self.0.set_read_timeout(Some(LINE))?;
        self.0.set_write_timeout(Some(LINE))?;
        let mut line = String::new();
        BufReader::new((&self.0).take(MAX_LINE)).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(Into::into)
    }
}

/// Asks the supervisor of a name, and waits until it has done so.
///
/// # Errors
/// None runs under the name, permission is denied, or the supervisor's refusal.
pub fn ask(name: &str, request: Request) -> Result<Status, Error> {
    folder::check(name)?;
    let path = folder::path_of(name).join("control");
    let stream = match UnixStream::connect(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let others = folder::names();
            let running = match others.as_slice() {
                [] => "start it with a command: udpath multiply -n N -- COMMAND".to_owned(),
                names => format!("known: {}", names.join(", ")),
            };
            return Err(Error::NotRunning { name: name.to_owned(), running });
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Error::NotRoot),
        stream => stream.map_err(Error::system(format!("connect to {}", path.display())))?,
    };
    let asked = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(ANSWER))?;
        (&stream).write_all(format!("{}\n", serde_json::to_string(&request)?).as_bytes())?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_LINE)).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other("it ended without an answer"));
        }
        Ok(serde_json::from_str(&line)?)
    };
    match asked().map_err(Error::system(format!("ask the supervisor of {name}")))? {
        Answer::Ok(status) => Ok(*status),
        Answer::Error(why) => Err(Error::Refused(why)),
    }
}

/// All instances of this machine, by name.
///
/// # Errors
/// Permission is denied.
pub fn list() -> Result<Vec<Listed>, Error> {
    let mut list = Vec::new();
    for name in folder::names() {
        match ask(&name, Request::Status) {
            Ok(status) => list.push(Listed::Running(Box::new(status))),
            Err(Error::NotRoot) => return Err(Error::NotRoot),
            // Locked for this look only: nothing is changed.
            Err(_) => match Folder::look(&name)? {
                Some(Claim::Held(pid)) => list.push(Listed::Silent { name, pid }),
                Some(Claim::Ours(_)) => list.push(Listed::Left { name }),
                None => {}
            },
        }
    }
    Ok(list)
}
