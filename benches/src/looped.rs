//! A link within the process that turns replies into the next requests, without a device or the kernel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use udpath_stack::frame::{Burst, Offloads};
use udpath_stack::handler::{Datagram, Outcome};
use udpath_stack::port::memory::{End, looped};
use udpath_stack::port::{Completions, Port};
use udpath_stack::wire::{Flow, LinkHeader, Mac, Tags, UdpChecksum, build};

/// Port of all of them, clients and servers.
const PORT: u16 = 7;
/// Address of the server.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The service.
pub(crate) fn echo(datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
    let len = datagram.payload.len();
    room[..len].copy_from_slice(datagram.payload);
    Outcome::Reply(len)
}

/// The source of a frame's hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    /// Toeplitz, by the worker.
    Computed,
    /// The device.
    Given,
}

/// One binding for all of the link's addresses, and these: its server's, and that of each of `frames` clients.
pub(crate) fn wildcard(frames: usize) -> ([SocketAddr; 1], Vec<IpAddr>) {
    let clients = (0..u16::try_from(frames).unwrap_or(u16::MAX)).map(|made| client(made).ip());
    let locals = std::iter::once(SERVER.into()).chain(clients).collect();
    ([SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))], locals)
}

/// The address of the client whose request is the frame number `made`.
fn client(made: u16) -> SocketAddr {
    let [high, low] = made.to_be_bytes();
    SocketAddr::from(([198, 51, 100 + high, low], PORT))
}

/// A link with `frames` requests in 64-byte frames, each from its own address, which is served as well.
pub(crate) fn filled(frames: usize, hash: Hash) -> Result<(End, Vec<SocketAddr>)> {
    let mut end = looped(frames)?;
    let mut binds = vec![SocketAddr::from((SERVER, PORT))];
    let mut burst = Burst::new();
    let mut made = 0_u16;
    while usize::from(made) < frames {
        end.supply(&mut burst, frames);
        for frame in &mut burst {
            let client = client(made);
            let link = LinkHeader {
                source: Mac([2, 0, 0, 0, 0, 9]),
                destination: Mac([2, 0, 0, 0, 0, 1]),
                tags: Tags::NONE,
            };
            let flow = Flow::new(link, client, binds[0]).context("addresses of one family")?;
            ensure!(frame.set_len(60), "a frame has room for 60 bytes");
            build(frame.bytes_mut(), &flow, &[7; 18], UdpChecksum::Computed).context("60 bytes hold it")?;
            if hash == Hash::Given {
                // Any number but 0, as varied as a NIC's. It stays with the frame, whose reply is the next request.
                let hash = (u32::from(made) + 1).wrapping_mul(0x9e37_79b1);
                frame.set_offloads(Offloads { hash: Some(hash), ..Offloads::default() });
            }
            binds.push(client);
            made += 1;
        }
        end.transmit(&mut burst);
    }
    // The worker must not see completions of frames that it did not send.
    end.completions(&mut Completions::default());
    Ok((end, binds))
}
