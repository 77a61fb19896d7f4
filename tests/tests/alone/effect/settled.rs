//! The settings of a snapshot, as bytes. Every field of every part is named here, so a new field does not compile
//! until it is classified: settings are compared; counters, numbers that the kernel reassigns, and state of the host
//! are not.

use serde_json::{Value, json};
use udpath_host::Snapshot;
use udpath_host::interfaces::{Interface, LinkState, Napi, Qdisc};
use udpath_host::processes::{Process, Thread};
use udpath_host::queues::{RxQueue, TxQueue};
use udpath_host::sockets::{Socket, SocketMemory};
use udpath_host::sysctls::{Sysctl, SysctlScope};

/// The settings of a network namespace and of the servers in it.
pub(crate) fn settled(snapshot: &Snapshot) -> String {
    let Snapshot {
        schema: _,
        taken: _,
        interfaces,
        steering,
        packet_sockets: _,
        tuns: _,
        // Belongs to the host: other programs may change it.
        kernel: _,
        cpus: _,
        nodes: _,
        limits: _,
        irqs: _,
        processor_interrupts: _,
        softirqs: _,
        actors: _,
        // Counters.
        softnet: _,
        ip: _,
        neighbours: _,
        udp: _,
        sockets,
        sysctls,
        netfilter,
        missing,
    } = snapshot;
    let sysctls: Vec<Value> = sysctls.iter().filter_map(sysctl).collect();
    let whole = json!({
        "interfaces": interfaces.iter().map(interface).collect::<Vec<_>>(),
        "steering": steering,
        "sockets": sockets.list.iter().map(socket).collect::<Vec<_>>(),
        "groups": sockets.groups,
        "processes": sockets.processes.iter().map(process).collect::<Vec<_>>(),
        "sysctls": sysctls,
        "nftables": netfilter.nftables,
        "missing": missing,
    });
    format!("{whole:#}")
}

fn interface(of: &Interface) -> Value {
    let Interface {
        name,
        index,
        kind,
        address,
        permanent_address,
        link: LinkState { up, carrier, state, speed, duplex, carrier_changes: _, tx_queue_len },
        mtu,
        relations,
        vlan,
        bond,
        driver,
        node,
        local_cpus,
        channels,
        rings,
        coalescing,
        features,
        rss,
        hash_fields,
        flow_rules,
        time_stamping_offer,
        time_stamping,
        rx,
        tx,
        napis,
        napi_defaults,
        qdiscs,
        xdp,
        xdp_features,
        statistics: _,
        driver_counters: _,
    } = of;
    let napis = napis.as_ref().map(|napis| napis.value.iter().map(napi).collect::<Vec<_>>());
    let qdiscs = qdiscs.as_ref().map(|qdiscs| qdiscs.value.iter().map(qdisc).collect::<Vec<_>>());
    json!({
        "name": name, "index": index, "kind": kind, "address": address, "permanent_address": permanent_address,
        "link": [json!(up), json!(carrier), json!(state), json!(speed), json!(duplex), json!(tx_queue_len)],
        "mtu": mtu, "relations": relations, "vlan": vlan, "bond": bond, "driver": driver, "node": node,
        "local_cpus": local_cpus, "channels": channels, "rings": rings, "coalescing": coalescing,
        "features": features, "rss": rss, "hash_fields": hash_fields, "flow_rules": flow_rules,
        "time_stamping_offer": time_stamping_offer, "time_stamping": time_stamping,
        "rx": rx.iter().map(rx_queue).collect::<Vec<_>>(), "tx": tx.iter().map(tx_queue).collect::<Vec<_>>(),
        "napis": napis, "napi_defaults": napi_defaults, "qdiscs": qdiscs, "xdp": xdp, "xdp_features": xdp_features,
    })
}

fn rx_queue(of: &RxQueue) -> Value {
    // A NAPI gets a new id each time it is created.
    let RxQueue { id, napi, irq, rps_cpus, rps_flow_cnt, xsk, counters: _ } = of;
    json!({ "id": id, "napi": napi.is_some(), "irq": irq, "rps_cpus": rps_cpus, "rps_flow_cnt": rps_flow_cnt, "xsk": xsk })
}

fn tx_queue(of: &TxQueue) -> Value {
    let TxQueue { id, napi, irq, xps_cpus, xps_rxqs, counters: _ } = of;
    json!({ "id": id, "napi": napi.is_some(), "irq": irq, "xps_cpus": xps_cpus, "xps_rxqs": xps_rxqs })
}

fn napi(of: &Napi) -> Value {
    let Napi {
        interface,
        id: _,
        irq,
        thread,
        defer_hard_irqs,
        gro_flush_timeout,
        irq_suspend_timeout,
        threaded,
    } = of;
    json!([
        interface,
        irq,
        thread.is_some(),
        defer_hard_irqs,
        gro_flush_timeout,
        irq_suspend_timeout,
        threaded
    ])
}

fn qdisc(of: &Qdisc) -> Value {
    // A qdisc created without a handle gets a new one each time.
    let Qdisc {
        interface,
        kind,
        handle,
        parent,
        bytes: _,
        packets: _,
        queued: _,
        backlog: _,
        drops: _,
        overlimits: _,
        requeues: _,
    } = of;
    json!([interface, kind, handle == "0:", parent])
}

fn socket(of: &Socket) -> Value {
    let Socket {
        local,
        peer,
        interface,
        inode,
        cookie,
        uid,
        v6only,
        receive_queue: _,
        send_queue: _,
        memory,
        drops: _,
        owners,
        group,
        options,
    } = of;
    let memory =
        memory.map(|SocketMemory { receive_buffer, send_buffer, reserved: _, options: _, backlog: _ }| {
            [receive_buffer, send_buffer]
        });
    json!({
        "local": local, "peer": peer, "interface": interface, "inode": inode, "cookie": cookie, "uid": uid,
        "v6only": v6only, "memory": memory, "owners": owners, "group": group,
        "options": options,
    })
}

fn process(of: &Process) -> Value {
    // The limits include the control group's usage; a process whose parent ends gets another.
    let Process { pid, name, executable, command, uid, parent: _, group, unit, container, limits, threads } =
        of;
    let threads: Vec<Value> = threads
        .iter()
        .map(|Thread { tid, name, cpus, last_cpu: _, state: _, time: _ }| json!([tid, name, cpus]))
        .collect();
    json!({
        "pid": pid, "name": name, "executable": executable, "command": command, "uid": uid, "group": group,
        "unit": unit, "container": container, "cpus": limits.cpus, "nodes": limits.nodes, "cpuset": limits.cpuset,
        "threads": threads,
    })
}

/// Only sysctls of the namespace.
fn sysctl(of: &Sysctl) -> Option<Value> {
    let Sysctl { name, value, scope } = of;
    (*scope == SysctlScope::Namespace).then(|| json!([name, value]))
}
