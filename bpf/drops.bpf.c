/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Packets the kernel drops, with reason and location: skb:kfree_skb. Consumed packets use another tracepoint.
 *
 *   kfree_skb(skb, location, reason) ──> drops[location, reason, way, port] += 1
 *                                              no room ──> rest[location, reason, way, 0] += 1
 */
#include "kernel.h"

/* The order of `Way` in crates/bpf/src/trace/drops.rs. */
enum way {
	OTHER,    /* not UDP, or headers unreadable */
	RECEIVED, /* the port is the destination */
	SENT,     /* the port is the source */
};

/* Sizes and word order: crates/bpf/src/trace/drops.rs. */
struct place {
	__u64 location;
	__u32 reason;
	__u16 port;
	__u16 way;
};

MAP(drops, PERCPU_HASH, 4096, struct place, __u64);

/* Without ports, so that a port scan cannot fill it. */
MAP(rest, PERCPU_HASH, 512, struct place, __u64);

PER_CPU(lost, __u64);

static __always_inline int count(void *map, const struct place *place)
{
	__u64 *count = bpf_map_lookup_elem(map, place), one = 1;

	if (!count)
		return !bpf_map_update_elem(map, place, &one, BPF_NOEXIST);
	(*count)++;
	return 1;
}

/* skb:kfree_skb(skb, location, reason, rx_sk) */
SEC("raw_tracepoint")
int kfree_skb(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sk_buff *skb = (void *)ctx->args[0];
	struct place place = { .location = ctx->args[1], .reason = ctx->args[2] };
	struct ports ports = {};
	__u32 zero = 0;
	__u64 *none;

	if (read_ports(&ports, BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header),
		       BPF_CORE_READ(skb, protocol))) {
		/* The stack records the interface of received packets; sent packets have none. */
		place.way = BPF_CORE_READ(skb, skb_iif) ? RECEIVED : SENT;
		place.port = place.way == RECEIVED ? ports.destination : ports.source;
	}
	if (count(&drops, &place))
		return 0;
	place.port = 0;
	if (count(&rest, &place))
		return 0;
	none = bpf_map_lookup_elem(&lost, &zero);
	if (none)
		(*none)++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
