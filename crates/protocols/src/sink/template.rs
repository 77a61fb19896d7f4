//! The load's side of sink: datagrams that name themselves, and the question what has arrived.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_load::plan::Transport;
use udpath_load::template::{Judgement, Protocol, Received, Template};

use super::{QUESTION, Report};

/// First byte of every datagram: not that of [`QUESTION`].
const MAGIC: u8 = b'U';
/// Magic, flow and seq, as far as they fit.
const HEADER: usize = 13;
/// Questions asked within the time allowed: one or its report may be lost.
const TRIES: u32 = 4;

/// Sink as the load sees it. There are no replies to judge; datagrams carry flow and seq (big endian, as far as the
/// size allows) for those who capture them.
#[derive(Debug, Clone, Copy, Default)]
pub struct SinkLoad;

impl Protocol for SinkLoad {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn min_size(&self) -> usize {
        1
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(SinkTemplate)
    }

    fn received(&self, target: SocketAddr, transport: Transport, timeout: Duration) -> Option<Received> {
        // It takes both at one address, and is asked by datagrams about either.
        let Report { datagrams, bytes, stream_bytes, cpu_ns } = ask(target, timeout)?;
        let (datagrams, bytes) = match transport {
            Transport::Udp => (datagrams, bytes),
            Transport::Tcp => (0, stream_bytes),
        };
        Some(Received { datagrams, bytes, cpu: Some(Duration::from_nanos(cpu_ns)) })
    }
}

/// Asks the sink at `target`, from a socket of its own in the calling thread's network namespace.
fn ask(target: SocketAddr, timeout: Duration) -> Option<Report> {
    let any: SocketAddr =
        if target.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    socket.set_read_timeout(Some((timeout / TRIES).max(Duration::from_millis(1)))).ok()?;
    let mut reply = [0; Report::LEN + 1];
    for _ in 0..TRIES {
        // A refusal (port unreachable) may be told by either call; the next try asks again.
        if socket.send(&QUESTION).is_err() {
            continue;
        }
        if let Ok(n) = socket.recv(&mut reply)
            && let Some(report) = Report::decode(&reply[..n])
        {
            return Some(report);
        }
    }
    None
}

/// Writes datagrams for a sink.
#[derive(Debug, Clone, Copy)]
pub struct SinkTemplate;

impl Template for SinkTemplate {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn min_size(&self) -> usize {
        1
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) {
        let mut header = [MAGIC; HEADER];
        header[1..5].copy_from_slice(&flow.to_be_bytes());
        header[5..].copy_from_slice(&seq.to_be_bytes());
        let n = request.len().min(HEADER);
        // The rest keeps what is there: a sink reads none of it, and a flood has no time to write it.
        request[..n].copy_from_slice(&header[..n]);
    }

    fn check(&self, _flow: u32, _reply: &[u8]) -> Judgement {
        // Nothing answers a sink's datagrams.
        Judgement::Corrupt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_datagram_is_taken_for_the_question() {
        for size in [1, 12, 13, 16, 48, 100] {
            let mut bytes = vec![0; size];
            SinkTemplate.write(u32::MAX, u64::MAX, &mut bytes);
            assert_ne!(bytes, QUESTION);
            assert_eq!(bytes[0], MAGIC);
        }
    }

    #[test]
    fn a_sink_is_asked_and_silence_is_unknown() {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = sink.local_addr().unwrap();
        assert_eq!(SinkLoad.received(target, Transport::Udp, Duration::from_millis(40)), None);
        // It wakes up now, and finds the questions above before the ones below.
        std::thread::scope(|scope| {
            let both = || {
                [Transport::Udp, Transport::Tcp].map(|t| SinkLoad.received(target, t, Duration::from_secs(8)))
            };
            let asked = scope.spawn(both);
            let mut question = [0; 64];
            while !asked.is_finished() {
                sink.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                if let Ok((n, peer)) = sink.recv_from(&mut question) {
                    assert_eq!(question[..n], QUESTION);
                    // The asker of the first ones is gone.
                    let report = Report { datagrams: 3, bytes: 300, stream_bytes: 4, cpu_ns: 5 };
                    let _ = sink.send_to(&report.encode(), peer);
                }
            }
            let cpu = Some(Duration::from_nanos(5));
            let expected =
                [(3, 300), (0, 4)].map(|(datagrams, bytes)| Some(Received { datagrams, bytes, cpu }));
            assert_eq!(asked.join().unwrap(), expected);
        });
        assert_eq!(SinkLoad.received(target, Transport::Tcp, Duration::from_millis(40)), None);
    }
}
