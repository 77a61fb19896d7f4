//! What looks within the interval add to a map.

use super::Map;
use crate::sockets::looks::Looks;
use crate::sockets::{Socket, Sockets};

impl Map {
    /// Adds what looks showed to its sockets and processes; the map is of `sockets`.
    pub fn add_looks(&mut self, looks: &Looks, sockets: &Sockets) {
        let (port, asked) = looks.asked();
        for socket in &mut self.sockets {
            let is = |read: &&Socket| read.inode == socket.inode && read.local == socket.local;
            socket.looks = sockets.list.iter().find(is).and_then(|read| looks.of(read));
            // One that is bound to an address answers from that.
            if socket.local.ip().is_unspecified() && socket.local.port() == *port && socket.peer.is_none() {
                socket.asked.clone_from(asked);
            }
        }
        for socket in &sockets.list {
            let Some(look_ups) = looks.look_ups(socket) else { continue };
            let owns = |pid| socket.owners.iter().any(|owner| owner.pid == pid);
            for process in self.processes.iter_mut().filter(|process| owns(process.pid)) {
                process.look_ups = Some(look_ups);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;
    use crate::map::ProcessMap;
    use crate::sockets::Owner;
    use crate::sockets::looks::LookUps;
    use crate::sockets::tests::socket;
    use crate::source::Folder;

    #[test]
    fn a_resolvers_socket_is_its_processes_at_the_end_and_its_users_before() {
        let asks = |inode, uid| Socket {
            peer: Some("192.0.2.53:53".parse().unwrap()),
            owners: vec![Owner { pid: 812, fd: 5 }],
            ..socket("192.0.2.1:40000", inode, uid)
        };
        let mut looks = Looks::default();
        for sockets in [&[asks(7, 99), asks(8, 99)][..], &[], &[asks(9, 99)], &[asks(9, 0)]] {
            looks.add(sockets);
        }
        let mut map = Map::whole(&Snapshot::read(&Folder::captured("/no-such".as_ref())), None);
        let process = |pid| ProcessMap { pid, ..Default::default() };
        map.processes = vec![process(812), process(813)];
        let at_end = Sockets { list: vec![asks(9, 99)], ..Sockets::default() };
        map.add_looks(&looks, &at_end);
        let server = "192.0.2.53:53".parse().unwrap();
        assert_eq!(map.processes[0].look_ups, Some(LookUps { server, looks: 4, open: 2 }));
        assert_eq!(map.processes[1].look_ups, None);
    }
}
