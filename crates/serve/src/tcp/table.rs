//! A worker's connections: by the key of their events, counted by network, and the one to close when another needs its
//! place.

use std::collections::HashMap;

use super::connection::Connection;
use super::limits::Network;

/// See the module.
#[derive(Default)]
pub(super) struct ConnectionTable {
    by_name: HashMap<u64, Connection>,
    /// Of the networks that have any. The hash is keyed: peers cannot choose networks that collide.
    by_network: HashMap<Network, usize>,
}

impl ConnectionTable {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn names(&self) -> Vec<u64> {
        self.by_name.keys().copied().collect()
    }

    pub(super) fn get(&self, name: u64) -> Option<&Connection> {
        self.by_name.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: u64) -> Option<&mut Connection> {
        self.by_name.get_mut(&name)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Connection)> {
        self.by_name.iter_mut().map(|(name, connection)| (*name, connection))
    }

    pub(super) fn insert(&mut self, name: u64, connection: Connection) {
        *self.by_network.entry(connection.network).or_default() += 1;
        self.by_name.insert(name, connection);
    }

    /// Removes a connection, which closes it. Returns whether there was one.
    pub(super) fn remove(&mut self, name: u64) -> bool {
        let Some(connection) = self.by_name.remove(&name) else { return false };
        if let Some(count) = self.by_network.get_mut(&connection.network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&connection.network);
            }
        }
        true
    }

    /// The connection whose place a new one of `network` takes: one of the same network if that has its `share`, else
    /// one of a network that has more than that, else any; of these, the one whose last progress is longest ago.
    pub(super) fn victim(&self, network: Option<Network>, share: usize) -> Option<u64> {
        let count = |network: Network| self.by_network.get(&network).copied().unwrap_or(0);
        if let Some(own) = network.filter(|own| count(*own) >= share) {
            return self.longest_without_progress(|of| of == own);
        }
        self.longest_without_progress(|of| count(of) > share)
            .or_else(|| self.longest_without_progress(|_any| true))
    }

    fn longest_without_progress(&self, counts: impl Fn(Network) -> bool) -> Option<u64> {
        let candidates = self.by_name.iter().filter(|(_, connection)| counts(connection.network));
        candidates.min_by_key(|(_, connection)| connection.progress).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// A table of connections from these addresses, each of whose progress is a second later than that of the one
    /// before.
    fn table(peers: &[&str]) -> ConnectionTable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut table, begun) = (ConnectionTable::default(), Instant::now());
        for (name, peer) in (0..).zip(peers) {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            table.insert(name, Connection::new(stream, peer, begun + Duration::from_secs(name)));
        }
        table
    }

    #[test]
    fn a_network_with_more_than_its_share_gives_way_first() {
        let network = |peer: &str| Some(Network::of(peer.parse().unwrap()));
        let mut table = table(&["192.0.2.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "198.51.100.1"]);
        assert_eq!(table.victim(network("203.0.113.1"), 2), Some(1), "10.0.0.0/24 has 3");
        assert_eq!(table.victim(network("203.0.113.1"), 3), Some(0), "nobody has more: the oldest");
        assert_eq!(table.victim(network("10.0.0.9"), 3), Some(1), "it has its share: its own oldest");
        assert_eq!(table.victim(network("198.51.100.9"), 1), Some(4));
        assert_eq!(table.victim(None, 3), Some(0));
        assert!(table.remove(1) && !table.remove(1));
        assert_eq!(table.victim(network("203.0.113.1"), 2), Some(0));
        assert!([0, 2, 3, 4].into_iter().all(|name| table.remove(name)));
        assert_eq!((table.victim(None, 1), table.len(), table.by_network.len()), (None, 0, 0));
    }
}
