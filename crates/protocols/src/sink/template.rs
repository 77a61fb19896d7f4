//! The load: datagrams that carry their flow and seq, and the question of how many arrived.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_load::plan::Transport;
use udpath_load::template::{Judgement, Protocol, Received, Template};

use super::{QUESTION, Report};

/// First byte of every datagram; differs from that of [`QUESTION`].
const MAGIC: u8 = b'U';
/// Bytes of magic, flow and seq, as far as they fit.
const HEADER: usize = 13;
/// Questions asked within the timeout: one or its report may be lost.
const TRIES: u32 = 4;

/// Sink for a load. There are no replies to judge; datagrams carry flow and seq (big endian, as far as the size
/// allows), readable in a capture.
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
        // The sink serves both transports at one address, and answers questions over UDP only.
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
        // Either call may report "port unreachable"; the next try asks again.
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

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let mut header = [MAGIC; HEADER];
        header[1..5].copy_from_slice(&flow.to_be_bytes());
        header[5..].copy_from_slice(&seq.to_be_bytes());
        let n = request.len().min(HEADER);
        // The rest of the buffer stays as it is: a sink does not read it, and writing it would slow a flood down.
        request[..n].copy_from_slice(&header[..n]);
        request.len()
    }

    fn check(&self, _flow: u32, _reply: &[u8]) -> Judgement {
        // A sink does not answer, so anything that comes back is wrong.
        Judgement::Corrupt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_datagram_looks_like_the_question() {
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
        // The answering starts now, with the questions from above first.
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
                    // The socket of the first questions is closed.
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
