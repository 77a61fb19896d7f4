//! The program of a group: replaced, and what cannot be.

use super::*;

#[test]
fn the_program_stays_with_the_group_and_another_can_replace_it() {
    udpath_lab::needs_root!();
    let group = Group::new(LOOPBACK[0], 4);
    let flow = group.flow();
    let cookies: Vec<Option<u64>> =
        group.sockets.iter().map(|socket| sockopt::socket_cookie(socket).ok()).collect();
    let mut iterator = ReuseportIterator::load().unwrap();
    let mut chooser = || {
        let groups = iterator.groups().unwrap();
        let ours =
            groups.into_iter().find(|group| group.members.iter().any(|member| member.cookie == cookies[0]));
        ours.unwrap().chooser
    };
    drop(group.select(Rule::RoundRobin));
    send(&flow, 100);
    assert!(is_even(&group.received(100), 4));

    let Chooser::Extended { id } = chooser() else { panic!("{:?}", chooser()) };
    let mut found = Installed::read(id).unwrap().unwrap();
    assert_eq!((found.rule, &found.sockets), (Rule::RoundRobin, &cookies));
    // Its sockets are released at once.
    found.release().unwrap();
    assert_eq!(Installed::read(id).unwrap().unwrap().sockets, [None; 4]);
    let mut selection = Selection::load(Rule::Field { offset: 1, length: 8 }, 4).unwrap();
    for (slot, socket) in (0..).zip(&group.sockets) {
        selection.set(slot, Some(socket.as_fd())).unwrap();
    }
    selection.attach_to(group.sockets[2].as_fd()).unwrap();
    send(&flow, 40);
    assert_eq!(receivers(&group.received(40)).len(), 1);
    let Chooser::Extended { id: other } = chooser() else { panic!("{:?}", chooser()) };
    assert_ne!(other, id);
    assert_eq!(Installed::read(other).unwrap().unwrap().rule, Rule::Field { offset: 1, length: 8 });

    drop(selection);
    detach_selection(group.sockets[3].as_fd()).unwrap();
    assert_eq!(chooser(), Chooser::Kernel);
    detach_selection(group.sockets[3].as_fd()).unwrap();
    // Sockets that a detached program has are waited for.
    let selection = group.select(Rule::RoundRobin);
    assert_eq!(selection.sockets().unwrap(), cookies);
    send(&flow, 100);
    assert!(is_even(&group.received(100), 4));
}

#[test]
fn what_cannot_be_is_said() {
    udpath_lab::needs_root!();
    let group = Group::new(LOOPBACK[0], 2);
    let mut selection = group.select(Rule::Hash);
    let said = |error: udpath_bpf::Error| Report::new(error).to_string();
    let alone = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unbound = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
    let not_udp = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();

    let error = said(Selection::attach(alone.as_fd(), Rule::Hash, 2).unwrap_err());
    assert!(error.ends_with("the socket was bound without SO_REUSEPORT; set it before bind"), "{error}");
    let error = said(selection.set(2, Some(group.sockets[0].as_fd())).unwrap_err());
    assert!(error.ends_with("its slots are 0 to 1"), "{error}");
    for socket in [alone.as_fd(), unbound.as_fd()] {
        let error = said(selection.set(1, Some(socket)).unwrap_err());
        assert!(error.ends_with("it is not bound, or was bound without SO_REUSEPORT"), "{error}");
    }
    let error = said(selection.set(1, Some(not_udp.as_fd())).unwrap_err());
    assert!(error.ends_with("it is not a UDP socket"), "{error}");
    // In the other slot.
    let error = said(selection.set(1, Some(group.sockets[0].as_fd())).unwrap_err());
    assert!(error.contains("empty that one first"), "{error}");
    let error = said(detach_selection(alone.as_fd()).unwrap_err());
    assert!(error.ends_with("the socket was bound without SO_REUSEPORT"), "{error}");
    assert!(said(Installed::read(u32::MAX).unwrap_err()).contains("no longer loaded"));
    // All of that changed nothing.
    let cookies: Vec<Option<u64>> =
        group.sockets.iter().map(|socket| sockopt::socket_cookie(socket).ok()).collect();
    assert_eq!(selection.sockets().unwrap(), cookies);
}
