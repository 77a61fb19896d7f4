//! UDP sockets as sock_diag lists them.

use udpath_netlink::{Error, diag};

use super::Client;
use crate::snapshot::sockets::{Socket, SocketMemory};

impl Client {
    pub(super) fn udp_sockets(&mut self) -> Result<Vec<Socket>, Error> {
        let diag = self.diag.as_mut().map_err(|refused| refused.clone())?;
        Ok(diag.udp_sockets()?.into_iter().map(socket).collect())
    }
}

fn socket(is: diag::UdpSocket) -> Socket {
    Socket {
        local: is.local,
        peer: is.peer,
        interface: is.interface,
        inode: is.inode,
        cookie: is.cookie,
        uid: is.uid,
        v6only: is.v6only,
        receive_queue: is.receive_queue,
        send_queue: is.send_queue,
        memory: is.memory.map(|memory| SocketMemory {
            receive_buffer: memory.receive_buffer,
            send_buffer: memory.send_buffer,
            reserved: memory.reserved,
            options: memory.options,
            backlog: memory.backlog,
        }),
        drops: is.drops,
        owners: Vec::new(),
        group: None,
        options: None,
    }
}
