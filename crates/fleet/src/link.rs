//! A connection to a NATS server, for code that is not asynchronous.
//!
//! ```text
//!   caller, agent ── send ──▶ bounded queue ──▶ ┌ thread: async-nats ┐ ──▶ NATS server
//!                 ◀─ next ─── bounded queue ◀── └ current-thread runtime ┘ ◀──
//! ```
//! A message that finds its queue full, or no connection, is dropped: what must arrive is sent again until it is
//! acknowledged. The client reconnects as long as the link exists, and subscribes again.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use std::{future, io};

use async_nats::{Client, ConnectOptions, Event, Subscriber};
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::clock;

/// Messages that wait to be sent or read. A run of a thousand agents has a few per agent and second. Lower: bursts are
/// lost.
const QUEUE: usize = 4096;
/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between attempts to connect again. Longer: results wait. Shorter: a thousand agents load a server that starts.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long the last messages may take when the link is closed, unless its owner says less.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the wait for the first connection looks whether it is still wanted. Longer: a signal is noticed later.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest file of credentials, bytes; they have a few thousand.
const MAX_CREDENTIALS: u64 = 1 << 20;

/// The server, and what proves who connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several, separated by commas, are one cluster.
    pub server: String,
    /// File with the credentials of a user: a JWT and its nkey.
    pub credentials: Option<PathBuf>,
    /// File with the seed of a user's nkey.
    pub nkey: Option<PathBuf>,
    /// File with the certificates that sign the server's (PEM); the connection must then use TLS.
    pub ca: Option<PathBuf>,
    /// Files with the certificate and the key that this side shows the server (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The address of the server is invalid.
    #[error("invalid server `{0}`: expected nats://HOST:PORT or tls://HOST:PORT")]
    Server(String),
    /// A file of the access cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The server cannot be reached, or does not let this user in.
    #[error("cannot connect to {server} (is a NATS server running there, and are these its credentials?)")]
    Connect {
        /// The server.
        server: String,
        /// The client's error.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The program is being ended.
    #[error("ended by a signal before there was a connection to the NATS server")]
    Stopped,
    /// The thread cannot be started.
    #[error("cannot start the thread of the connection")]
    Thread(#[source] io::Error),
}

/// A message received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// When it arrived, by this machine's clock.
    pub(crate) at: u64,
    pub(crate) payload: Vec<u8>,
}

/// What an agent and a caller need of a link; tests have one that loses messages.
pub(crate) trait Channel {
    /// Sends a message, unless there is no connection.
    fn send(&self, subject: &str, payload: Vec<u8>);

    /// The next message; none if there is none within `within`.
    fn next(&self, within: Duration) -> Option<Incoming>;

    /// Whether there is a connection now.
    fn is_connected(&self) -> bool;

    /// Sends what is queued, and waits for that no longer than `within`.
    fn close(&mut self, within: Duration);
}

/// Sends a message as JSON.
pub(crate) fn send(channel: &dyn Channel, subject: &str, message: &impl serde::Serialize) {
    // The messages consist of strings, numbers and lists, none of which can fail.
    if let Ok(payload) = serde_json::to_vec(message) {
        channel.send(subject, payload);
    }
}

struct Outgoing {
    subject: String,
    payload: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    outgoing: Option<mpsc::Sender<Outgoing>>,
    incoming: Receiver<Incoming>,
    connected: Arc<AtomicBool>,
    /// Closed once everything is sent. The thread itself is not waited for: it may be asking a name server.
    ended: Receiver<()>,
}

impl Link {
    /// Connects, and subscribes to `subjects`; gives up when `stop` is set.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open(access: &Access, subjects: Vec<String>, stop: &AtomicBool) -> Result<Self, LinkError> {
        let (outgoing, from_here) = mpsc::channel(QUEUE);
        let (ending, ended) = sync_channel(1);
        let (to_here, incoming) = sync_channel(QUEUE);
        let (opened, when_open) = sync_channel(1);
        let connected = Arc::new(AtomicBool::new(false));
        let (access, flag) = (access.clone(), Arc::clone(&connected));
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(opened.send(Err(LinkError::Thread(error)))),
            };
            runtime.block_on(async move {
                match connect(&access, &subjects, &flag).await {
                    Ok((client, subscribers)) => {
                        let _ = opened.send(Ok(()));
                        carry(client, subscribers, from_here, to_here).await;
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
                // Before the runtime, whose end waits for its name server.
                drop(ending);
            });
        };
        thread::Builder::new().name("nats".into()).spawn(work).map_err(LinkError::Thread)?;
        loop {
            match when_open.recv_timeout(POLL_INTERVAL) {
                Ok(opened) => break opened?,
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(LinkError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LinkError::Thread(io::Error::other("it ended")));
                }
            }
        }
        Ok(Self { outgoing: Some(outgoing), incoming, connected, ended })
    }
}

impl Channel for Link {
    fn send(&self, subject: &str, payload: Vec<u8>) {
        if let (true, Some(outgoing)) = (self.is_connected(), &self.outgoing) {
            let _ = outgoing.try_send(Outgoing { subject: subject.to_owned(), payload });
        }
    }

    fn next(&self, within: Duration) -> Option<Incoming> {
        match self.incoming.recv_timeout(within) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // The thread has ended; callers poll, and must not do so in a busy loop.
                thread::sleep(within);
                None
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    fn close(&mut self, within: Duration) {
        // Without a sender the thread sends what is queued, and ends.
        if self.outgoing.take().is_some() {
            let _ = self.ended.recv_timeout(within);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close(FLUSH_TIMEOUT);
    }
}

fn read(path: &PathBuf) -> Result<String, LinkError> {
    udpath_files::text(path, MAX_CREDENTIALS)
        .map_err(|cause| LinkError::File { path: path.display().to_string(), cause })
}

async fn connect(
    access: &Access,
    subjects: &[String],
    connected: &Arc<AtomicBool>,
) -> Result<(Client, Vec<Subscriber>), LinkError> {
    let servers: Vec<async_nats::ServerAddr> = access
        .server
        .split(',')
        .map(|server| server.parse().map_err(|_| LinkError::Server(server.to_owned())))
        .collect::<Result<_, _>>()?;
    let failed = |cause: Box<dyn std::error::Error + Send + Sync>| LinkError::Connect {
        server: access.server.clone(),
        cause,
    };
    let flag = Arc::clone(connected);
    let mut options = ConnectOptions::new()
        .name("udpath")
        .connection_timeout(CONNECT_TIMEOUT)
        .max_reconnects(None)
        .reconnect_delay_callback(|_| RECONNECT_DELAY)
        .event_callback(move |event| {
            match event {
                Event::Connected => flag.store(true, Ordering::Relaxed),
                Event::Disconnected | Event::Closed => flag.store(false, Ordering::Relaxed),
                _ => {}
            }
            future::ready(())
        });
    if let Some(path) = &access.credentials {
        options = options
            .credentials(&read(path)?)
            .map_err(|cause| LinkError::File { path: path.display().to_string(), cause })?;
    }
    if let Some(path) = &access.nkey {
        options = options.nkey(read(path)?.trim().to_owned());
    }
    if let Some(path) = &access.ca {
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &access.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
    }
    let connecting = timeout(CONNECT_TIMEOUT, options.connect(servers));
    let client =
        connecting.await.map_err(|late| failed(late.into()))?.map_err(|error| failed(error.into()))?;
    connected.store(true, Ordering::Relaxed);
    let mut subscribers = Vec::new();
    for subject in subjects {
        subscribers.push(client.subscribe(subject.clone()).await.map_err(|error| failed(error.into()))?);
    }
    // The server knows the subscriptions before anything is said that others may answer.
    client.flush().await.map_err(|error| failed(error.into()))?;
    Ok((client, subscribers))
}

/// Carries messages both ways until nothing can be sent any more.
async fn carry(
    client: Client,
    subscribers: Vec<Subscriber>,
    mut from_here: mpsc::Receiver<Outgoing>,
    to_here: SyncSender<Incoming>,
) {
    for mut subscriber in subscribers {
        let to_here = to_here.clone();
        tokio::spawn(async move {
            while let Some(message) =
                future::poll_fn(|context| Pin::new(&mut subscriber).poll_next(context)).await
            {
                let incoming = Incoming { at: clock::now(), payload: message.payload.to_vec() };
                let _ = to_here.try_send(incoming);
            }
        });
    }
    while let Some(Outgoing { subject, payload }) = from_here.recv().await {
        // While there is no connection the client's own queue may fill; what is lost is sent again.
        let _ = timeout(FLUSH_TIMEOUT, client.publish(subject, payload.into())).await;
    }
    let _ = timeout(FLUSH_TIMEOUT, client.flush()).await;
}
