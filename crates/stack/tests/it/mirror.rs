//! The mirror against a real kernel: changes made with `ip` in a lab machine appear in the tables. Needs root.
//!
//! Nothing here sleeps for a fixed time: the tables are polled until they match, for at most [`TIMEOUT`].

use std::io::Write;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine};
use udpath_stack::epoch::{Domain, Reader};
use udpath_stack::tables::{Mirror, MirrorError, Neighbour, NoPath, Route, State, View};
use udpath_stack::wire::Mac;

/// Long enough for any step here on a machine that is busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A mirror of one machine, and a reader of its tables.
struct Watch {
    mirror: Mirror,
    reader: Reader,
}

impl Watch {
    fn new(machine: &Machine) -> Self {
        let domain = Domain::new(1, 64);
        let mirror = machine.run(|| Mirror::start(&domain)).unwrap().unwrap();
        let reader = domain.register("test").unwrap();
        Self { mirror, reader }
    }

    fn see<T>(&mut self, look: impl FnOnce(View<'_>) -> T) -> T {
        let tables = self.mirror.tables();
        let seen = {
            let guard = self.reader.pin();
            look(tables.load(&guard))
        };
        self.reader.idle();
        seen
    }

    /// Polls until `wanted` returns true.
    #[track_caller]
    fn until(&mut self, what: &str, wanted: impl Fn(View<'_>) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !self.see(&wanted) {
            assert!(Instant::now() < end, "never seen: {what}; {:?}", self.mirror.status());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn lab(name: &str) -> Lab {
    let spec = LinkSpec::with_queues(2);
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &spec).up().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[track_caller]
fn run(machine: &Machine, line: &str) {
    let output = machine.command("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `ip -batch`, one command per line.
#[track_caller]
fn batch(machine: &Machine, lines: &str) {
    let mut ip = machine.command("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    ip.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(ip.wait().unwrap().success());
}

fn goes_by(view: View<'_>, destination: &str) -> Option<(u32, Option<IpAddr>)> {
    match view.routes.get(ip(destination)) {
        Some(Route::Hop(hop)) => Some((hop.interface, hop.gateway)),
        _ => None,
    }
}

#[test]
fn the_tables_are_complete_at_the_start() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-start");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = (client.interface("eth0").unwrap(), server.interface("eth0").unwrap());
    let mut watch = Watch::new(client);
    watch.see(|view| {
        let eth0 = view.interfaces.by_name("eth0").unwrap();
        assert_eq!((eth0.index, eth0.mtu), (here.ifindex(), here.mtu()));
        assert_eq!(eth0.mac, Some(Mac(here.mac().0)));
        assert_eq!((eth0.rx_queues, eth0.tx_queues), (2, 2));
        assert!(eth0.up && eth0.running);
        let lo = view.interfaces.by_name("lo").unwrap();
        assert_eq!((lo.mac, lo.up), (None, true));
        assert_eq!(view.interfaces.all().len(), 2);
        for own in
            [IpAddr::from(here.ipv4()), here.ipv6().into(), ip("127.0.0.1"), ip("127.8.8.8"), ip("::1")]
        {
            assert!(view.addresses.is_local(here.ifindex(), own), "{own}");
        }
        assert!(!view.addresses.is_local(here.ifindex(), there.ipv4().into()));
        assert!(view.addresses.is_broadcast([10, 0, 0, 255].into()));
        for peer in [IpAddr::from(there.ipv4()), there.ipv6().into()] {
            let mac = Mac(there.mac().0);
            assert_eq!(view.neighbours.get(here.ifindex(), peer), Some(Neighbour::Usable(mac)), "{peer}");
            let path = view.path(peer).unwrap();
            assert_eq!((path.interface, path.next_hop, path.next_hop_address), (here.ifindex(), mac, peer));
            assert_eq!((path.own, path.mtu, path.stale), (Mac(here.mac().0), here.mtu(), false));
            let own = if peer.is_ipv4() { IpAddr::V4(here.ipv4()) } else { IpAddr::V6(here.ipv6()) };
            assert_eq!(path.source, own);
        }
        assert_eq!(view.path(ip("198.51.100.1")), Err(NoPath::NoRoute(ip("198.51.100.1"))));
    });
    let status = watch.mirror.status();
    assert_eq!((status.state, status.resyncs, status.undecodable), (State::Following, 0, 0));
}

#[test]
fn addresses_come_and_go() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-addr");
    let client = lab.machine("client").unwrap();
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mut watch = Watch::new(client);
    for (address, prefix) in [("192.0.2.7", 24), ("2001:db8::7", 64)] {
        run(client, &format!("addr add {address}/{prefix} dev eth0 nodad"));
        watch.until("the address", |view| view.addresses.is_local(eth0, ip(address)));
        run(client, &format!("addr del {address}/{prefix} dev eth0"));
        watch.until("its end", |view| !view.addresses.is_local(eth0, ip(address)));
    }
    // Whole networks, without an interface address.
    run(client, "route add local 203.0.113.0/24 dev lo");
    watch.until("the network", |view| view.addresses.is_local(eth0, ip("203.0.113.200")));
    run(client, "route del local 203.0.113.0/24 dev lo");
    watch.until("its end", |view| !view.addresses.is_local(eth0, ip("203.0.113.200")));
    assert_eq!(watch.mirror.status().resyncs, 0);
}

#[test]
fn neighbours_change() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-neigh");
    let client = lab.machine("client").unwrap();
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mut watch = Watch::new(client);
    for address in ["10.0.0.77", "fd00::77"] {
        let peer = ip(address);
        let seen = |wanted| move |view: View<'_>| view.neighbours.get(eth0, peer) == wanted;
        run(client, &format!("neigh add {address} lladdr 02:00:00:00:00:77 dev eth0 nud permanent"));
        watch.until("the neighbour", seen(Some(Neighbour::Usable(Mac([2, 0, 0, 0, 0, 0x77])))));
        run(client, &format!("neigh change {address} lladdr 02:00:00:00:00:78 dev eth0 nud stale"));
        watch.until("its change", seen(Some(Neighbour::Stale(Mac([2, 0, 0, 0, 0, 0x78])))));
        run(client, &format!("neigh del {address} dev eth0"));
        watch.until("its end", seen(None));
    }
}

#[test]
fn routes_come_change_and_go() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-route");
    let client = lab.machine("client").unwrap();
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mut watch = Watch::new(client);
    run(client, "route add 198.51.100.0/24 via 10.0.0.2 mtu 1300");
    watch.until("the route", |view| goes_by(view, "198.51.100.9") == Some((eth0, Some(ip("10.0.0.2")))));
    watch.see(|view| assert_eq!(view.path(ip("198.51.100.9")).map(|path| path.mtu), Ok(1300)));
    run(client, "route replace 198.51.100.0/24 via 10.0.0.3");
    watch.until("its change", |view| goes_by(view, "198.51.100.9") == Some((eth0, Some(ip("10.0.0.3")))));
    run(client, "route add blackhole 198.51.100.128/25");
    watch.until("a hole in it", |view| view.routes.get(ip("198.51.100.200")) == Some(&Route::Reject));
    run(client, "route add 198.51.100.0/24 via 10.0.0.4 metric 5");
    run(client, "route del 198.51.100.0/24 via 10.0.0.3");
    watch.until("the next best", |view| goes_by(view, "198.51.100.9") == Some((eth0, Some(ip("10.0.0.4")))));
    run(client, "route del 198.51.100.0/24 via 10.0.0.4 metric 5");
    watch.until("its end", |view| view.routes.get(ip("198.51.100.9")).is_none());
    // Several hops, which are added and removed one by one in IPv6.
    run(client, "route add 203.0.113.0/24 nexthop via 10.0.0.5 nexthop via 10.0.0.6");
    watch.until("the first hop", |view| goes_by(view, "203.0.113.1") == Some((eth0, Some(ip("10.0.0.5")))));
    run(client, "-6 route add fd01::/64 via fd75:7564:7061:7468::5 dev eth0 onlink");
    run(client, "-6 route append fd01::/64 via fd75:7564:7061:7468::6 dev eth0 onlink");
    run(client, "-6 route del fd01::/64 via fd75:7564:7061:7468::5 dev eth0");
    let second = Some((eth0, Some(ip("fd75:7564:7061:7468::6"))));
    watch.until("the second hop", |view| goes_by(view, "fd01::1") == second);
    // An IPv4 network behind an IPv6 router.
    run(client, "route add 192.0.2.0/24 via inet6 fd75:7564:7061:7468::9 dev eth0 onlink");
    let v6 = Some((eth0, Some(ip("fd75:7564:7061:7468::9"))));
    watch.until("the router of the other family", |view| goes_by(view, "192.0.2.1") == v6);
}

#[test]
fn links_go_down_and_up_and_their_silent_routes_with_them() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-link");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let peer = server.interface("eth0").unwrap().ipv4();
    let mut watch = Watch::new(client);
    let before = watch.see(|view| view.interfaces.generation());
    run(client, "link set eth0 mtu 1400");
    watch.until("the MTU", |view| view.interfaces.get(eth0).is_some_and(|eth0| eth0.mtu == 1400));
    assert!(watch.see(|view| view.interfaces.generation()) > before);
    // The other end goes down: no carrier here.
    run(server, "link set eth0 down");
    watch.until("no carrier", |view| view.interfaces.get(eth0).is_some_and(|eth0| eth0.up && !eth0.running));
    assert_eq!(watch.see(|view| view.path(peer.into())), Err(NoPath::InterfaceDown(eth0)));
    run(server, "link set eth0 up");
    watch.until("a carrier", |view| view.interfaces.get(eth0).is_some_and(|eth0| eth0.running));
    // IPv6 would report the removal of its addresses, and so give a hint.
    run(client, "-6 addr flush dev eth0");
    watch.until("no IPv6", |view| view.addresses.of(eth0).iter().all(|local| local.address.is_ipv4()));
    run(client, "route add 198.51.100.0/24 via 10.0.0.2");
    watch.until("the route", |view| view.routes.get(ip("198.51.100.1")).is_some());
    run(client, "link set eth0 down");
    watch.until("down", |view| view.interfaces.get(eth0).is_some_and(|eth0| !eth0.up));
    // The kernel sends no notification.
    watch.until("the route's end", |view| view.routes.get(ip("198.51.100.1")).is_none());
    run(client, "link set eth0 up");
    watch.until("the network's route", |view| goes_by(view, "10.0.0.2") == Some((eth0, None)));
    run(client, "link set eth0 name wire0");
    watch.until("the name", |view| view.interfaces.by_name("wire0").is_some_and(|wire0| wire0.index == eth0));
    run(client, "link del wire0");
    watch.until("its end", |view| {
        view.interfaces.get(eth0).is_none()
            && view.addresses.of(eth0).is_empty()
            && view.neighbours.is_empty()
            && view.routes.get(ip("10.0.0.2")).is_none()
    });
    assert!(watch.mirror.status().route_readings > 0);
}

#[test]
fn a_storm_of_routes_ends_in_the_right_table() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-storm");
    let client = lab.machine("client").unwrap();
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mut watch = Watch::new(client);
    let before = watch.see(|view| view.routes.len());
    let each = |what: &str, numbers: &mut dyn Iterator<Item = u32>| -> String {
        numbers
            .map(|number| {
                let (high, low) = (number / 250, number % 250);
                format!("route {what} 172.{}.{low}.0/24 via 10.0.0.{}\n", 16 + high, 2 + number % 100)
            })
            .collect()
    };
    batch(client, &each("add", &mut (0..1_000)));
    batch(client, &each("del", &mut (0..1_000).step_by(3)));
    batch(client, &each("add", &mut (0..1_000).step_by(6)));
    let there = |number: u32| !number.is_multiple_of(3) || number.is_multiple_of(6);
    let right = |view: View<'_>| {
        (0..1_000_u32).all(|number| {
            let destination = format!("172.{}.{}.1", 16 + number / 250, number % 250);
            let hop = there(number).then(|| (eth0, Some(IpAddr::from([10, 0, 0, 2 + (number % 100) as u8]))));
            goes_by(view, &destination) == hop
        })
    };
    watch.until("the storm's end", right);
    let count = (0..1_000).filter(|number| there(*number)).count();
    assert_eq!(watch.see(|view| view.routes.len()), before + count);
    let status = watch.mirror.status();
    assert_eq!(status.state, State::Following);
    assert!(status.publications < 1_500, "changes are taken together: {status:?}");
}

#[test]
fn another_namespaces_changes_are_not_seen() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-other");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mut watch = Watch::new(client);
    run(server, "addr add 192.0.2.1/24 dev eth0");
    run(server, "route add 198.51.100.0/24 via 10.0.0.1");
    run(server, "neigh add 10.0.0.99 lladdr 02:00:00:00:00:99 dev eth0");
    // A change here that comes after them.
    run(client, "addr add 203.0.113.1/24 dev eth0");
    watch.until("the own address", |view| view.addresses.is_local(eth0, ip("203.0.113.1")));
    watch.see(|view| {
        assert!(!view.addresses.is_local(eth0, ip("192.0.2.1")));
        assert!(view.routes.get(ip("198.51.100.1")).is_none());
        assert_eq!(view.neighbours.get(eth0, ip("10.0.0.99")), None);
    });
    // The mirror of the other namespace sees them.
    let mut other = Watch::new(server);
    other.see(|view| assert!(view.addresses.is_local(0, ip("192.0.2.1"))));
}

#[test]
fn the_kernel_is_asked_for_a_neighbour() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-ask");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let eth0 = client.interface("eth0").unwrap().ifindex();
    let mac = Mac(server.interface("eth0").unwrap().mac().0);
    run(server, "addr add 10.0.0.50/24 dev eth0");
    let Watch { mirror, mut reader } = Watch::new(client);
    let resolver = mirror.resolver();
    let peer = ip("10.0.0.50");
    let path = resolver.path(&mut reader, TIMEOUT, |view| view.path(peer)).unwrap();
    assert_eq!((path.interface, path.next_hop, path.next_hop_address), (eth0, mac, peer));
    // Stale, then requested: the kernel confirms it.
    run(client, "neigh change 10.0.0.50 dev eth0 nud stale");
    let mut watch = Watch { mirror, reader };
    watch.until("stale", |view| view.neighbours.get(eth0, peer) == Some(Neighbour::Stale(mac)));
    assert!(resolver.ask(eth0, peer));
    watch.until("confirmed", |view| view.neighbours.get(eth0, peer) == Some(Neighbour::Usable(mac)));
    // No such host: failed, after the kernel's own retries.
    let absent = ip("10.0.0.51");
    assert!(resolver.ask(eth0, absent));
    watch.until("failed", |view| view.neighbours.get(eth0, absent) == Some(Neighbour::Failed));
    let why = NoPath::NeighbourFailed { interface: eth0, next_hop: absent };
    let Watch { mirror, mut reader } = watch;
    assert_eq!(resolver.path(&mut reader, Duration::ZERO, |view| view.path(absent)), Err(why));
    // Errors that resolution cannot fix are returned at once.
    let nowhere = ip("198.51.100.1");
    assert_eq!(resolver.path(&mut reader, TIMEOUT, |view| view.path(nowhere)), Err(NoPath::NoRoute(nowhere)));
    assert_eq!(mirror.status().refused, 0);
    drop(mirror);
    assert!(!resolver.ask(eth0, peer), "the mirror is gone");
}

#[test]
fn mirrors_start_and_stop_while_everything_changes() {
    udpath_lab::needs_root!();
    let lab = lab("t-mirror-churn");
    let client = lab.machine("client").unwrap();
    let routes = |what: &str| {
        (0..200).map(|n| format!("route {what} 172.16.{n}.0/24 via 10.0.0.2\n")).collect::<String>()
    };
    let (add, del) = (routes("add"), routes("del"));
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for _ in 0..5 {
                batch(client, &add);
                batch(client, &del);
            }
            batch(client, &add);
        });
        let domain = Domain::new(1, 64);
        while !churn.is_finished() {
            match client.run(|| Mirror::start(&domain)).unwrap() {
                Ok(mirror) => drop(mirror),
                // The list changed during each read: acceptable here.
                Err(MirrorError::Unsettled { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        churn.join().unwrap();
    });
    let mut watch = Watch::new(client);
    watch
        .until("all of the last", |view| (0..200).all(|n| goes_by(view, &format!("172.16.{n}.1")).is_some()));
}
