/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The path of received UDP datagrams: queue, hash and CPU of each flow.
 *
 * A filter on a packet socket that rejects every packet: none is copied, cloned or changed. It runs with the taps
 * (__netif_receive_skb_core() of net/core/dev.c), after RPS: its CPU is the one that processes the packet further up
 * the stack. The socket is of the type that starts at the network header, whatever the link layer and its tags.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"

#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff

/* Table entries: flow, queue, hash and CPU. Fewer: most flows of a busy server are missed. More: memory, 136 bytes per
 * used entry. */
#define WAYS 65536

const volatile __u16 port; /* the receiver's, host byte order; 0: any */

struct way {
	__u32 source[4]; /* network byte order; of IPv4 the first word, the others 0 */
	__u32 destination[4];
	__u16 source_port; /* host byte order */
	__u16 destination_port;
	__u16 queue; /* counted from 1; 0: not recorded by the driver (skb_record_rx_queue()) */
	__u16 version;
	__u32 hash; /* 0: none yet */
	__u32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WAYS);
	__type(key, struct way);
	__type(value, __u64);
} ways SEC(".maps");

struct passed_over {
	__u64 no_room;   /* packets without room in the table */
	__u64 fragments; /* without ports, or with a hash that excludes ports */
};

SHARED_ARRAY(passed_over, 1, struct passed_over);

/* The offset of the UDP header; 0: not UDP, -1: a fragment. */
static __always_inline int addresses(struct __sk_buff *skb, struct way *way)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP || ip.ihl < 5)
			return 0;
		if (ip.frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_OFFSET_MASK))
			return -1;
		way->version = 4;
		way->source[0] = ip.saddr;
		way->destination[0] = ip.daddr;
		return ip.ihl * 4;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
			return 0;
		if (ip.nexthdr == IPPROTO_FRAGMENT)
			return -1;
		if (ip.nexthdr != IPPROTO_UDP)
			return 0;
		way->version = 6;
		__builtin_memcpy(way->source, &ip.saddr, sizeof(way->source));
		__builtin_memcpy(way->destination, &ip.daddr, sizeof(way->destination));
		return sizeof(ip);
	}
	return 0;
}

SEC("socket")
int watch(struct __sk_buff *skb)
{
	struct way way = {};
	struct passed_over *over;
	struct udphdr udp;
	__u32 zero = 0;
	__u64 one = 1, *packets;
	int at;

	/* Sent packets, and packets for other hosts seen in promiscuous mode, do not take this path. */
	if (skb->pkt_type == PACKET_OUTGOING || skb->pkt_type == PACKET_OTHERHOST)
		return 0;
	over = bpf_map_lookup_elem(&passed_over, &zero);
	if (!over)
		return 0;
	at = addresses(skb, &way);
	if (at < 0)
		__sync_fetch_and_add(&over->fragments, 1);
	if (at <= 0 || bpf_skb_load_bytes(skb, at, &udp, sizeof(udp)))
		return 0;
	way.source_port = bpf_ntohs(udp.source);
	way.destination_port = bpf_ntohs(udp.dest);
	if (port && way.destination_port != port)
		return 0;
	way.queue = skb->queue_mapping;
	way.hash = skb->hash;
	way.cpu = bpf_get_smp_processor_id();

	packets = bpf_map_lookup_elem(&ways, &way);
	if (!packets) {
		/* The key includes the CPU, so no other CPU counts this entry, but a softirq may have run in between. */
		if (!bpf_map_update_elem(&ways, &way, &one, BPF_NOEXIST))
			return 0;
		packets = bpf_map_lookup_elem(&ways, &way);
	}
	if (packets)
		__sync_fetch_and_add(packets, 1);
	else
		__sync_fetch_and_add(&over->no_room, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
