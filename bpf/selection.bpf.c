/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Chooses the socket of a reuseport group for each datagram.
 *
 *   datagram ─▸ rule ─▸ position ─▸ orders ─▸ slot ─▸ sockets ─▸ the socket's queue
 *                                                        └ empty: the slot of the next position
 *   no slot has a socket: none is chosen, and the kernel's hash of the flow chooses among all sockets of the group
 *
 * User space puts sockets into slots, and the occupied slots into `orders`. The kernel empties the slot of a socket that is
 * closed (bpf_sk_reuseport_detach of kernel/bpf/reuseport_array.c), and `orders` has it until user space writes it again.
 *
 * udpath_multiply also gives datagrams of this machine with a query's source port to the socket of that query's slot.
 *
 * The program runs for each datagram, before the socket's queue. It takes no lock, and no loop is longer than MAX_SLOTS.
 */
#include "kernel.h"
#include "verifier.h"

/* Sizes, numbers and field order: crates/bpf/src/selection.rs. */

/* Slots of a group: a power of two. Lower: machines with more CPUs than this cannot have a socket for each. Higher: the
 * verifier has more to check; a datagram costs no more. */
#define MAX_SLOTS 256

/* Sockets that LEAST_LOADED compares, from the one whose turn it is. Lower: a long queue is avoided less often. Higher:
 * each costs up to five reads of kernel memory per datagram, about 80 ns. */
#define COMPARED 16

/* Bytes of a field, in whole words. A connection ID of QUIC has up to 20 (RFC 9000). */
#define FIELD_WORDS 4

#define UDP_HEADER 8

/* The source address, which the destination follows. */
#define IPV4_SOURCE 12
#define IPV6_SOURCE 8

#define ETH_P_IP 0x0800

enum kind {
	HASH,
	CPU,
	ROUND_ROBIN,
	LEAST_LOADED,
	FIELD,
};

struct rule {
	__u32 kind;
	__u32 offset; /* FIELD: from the first byte of the payload */
	__u32 length; /* FIELD: bytes */
};

/* Constant for the verifier, so that it removes the other rules. */
const volatile struct rule rule;

/* The occupied slots. User space may write while the program reads: every field is checked, and a mixture of old and new
 * sends a datagram to some socket of the group. */
struct order {
	__u32 count;
	__u32 slots[MAX_SLOTS];
};

MAP(orders, ARRAY, 1, __u32, struct order);

/* Entries: the number of slots. Values of eight bytes: user space reads the sockets' cookies. */
MAP(sockets, REUSEPORT_SOCKARRAY, 1, __u32, __u64);

/* Datagrams per slot. */
MAP(datagrams, PERCPU_ARRAY, 1, __u32, __u64);

/* Slots that can be asked on their own, by the source port of the queries in network byte order. */
MAP(queries, HASH, MAX_SLOTS, __u32, __u32);

/* Whose turn it is: a number that counts up. One for each CPU, because a shared one would move between the caches of all
 * receiving CPUs with every datagram. Each CPU's datagrams are spread exactly, so that over all CPUs two sockets differ by
 * at most one datagram for each CPU. */
PER_CPU(turns, __u32);

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_map {
	__u32 max_entries;
};

/* kernel/bpf/reuseport_array.c */
struct reuseport_array {
	struct bpf_map map;
	struct sock *ptrs[];
};

#pragma clang attribute pop

static __always_inline __u32 scaled(__u32 hash, __u32 count)
{
	return (__u64)hash * count >> 32;
}

static __always_inline __u32 slot_at(const struct order *order, __u32 position)
{
	OPAQUE(position);
	return order->slots[position & (MAX_SLOTS - 1)];
}

/* Bytes in the socket's queue, as the kernel accounts them. */
static __always_inline int queued(const struct sock *sk)
{
	/* What the reader has taken is returned to rmem_alloc later, in one step (udp_rmem_release of net/ipv4/udp.c). */
	return BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter) -
	       BPF_CORE_READ((const struct udp_sock *)sk, forward_deficit);
}

/* Whether a thread waits for the socket. One that serves a datagram does not, although its queue is empty. With epoll one
 * always seems to: its entry stays in the socket's wait queue. */
static __always_inline int awaited(const struct sock *sk)
{
	const struct socket_wq *wq = BPF_CORE_READ(sk, sk_wq);
	const void *head = (const void *)wq + bpf_core_field_offset(struct socket_wq, wait.head);

	return wq && BPF_CORE_READ(wq, wait.head.next) != head;
}

/* How many positions after `start` the socket with the shortest queue is; of empty ones the first that a thread waits for,
 * of equal ones the first. */
static __always_inline __u32 least_loaded(const struct order *order, __u32 count, __u32 start)
{
	const void *map = &sockets, *array = 0;
	__u32 best = 0;
	int least = 0x7fffffff;

	/* A program may select a map's sockets, but not read them. Its address is a pointer without arithmetic to the
	 * verifier, and a number once copied by a helper. */
	bpf_probe_read_kernel(&array, sizeof(array), &map);
	array += bpf_core_field_offset(struct reuseport_array, ptrs);
	for (__u32 at = 0; at < COMPARED; at++) {
		const struct sock *sk = 0;
		__u32 position = start + at;
		int load;

		if (at >= count)
			break;
		if (position >= count)
			position -= count;
		/* Freed only after this program has ended: SOCK_RCU_FREE, which the map requires. */
		bpf_probe_read_kernel(&sk, sizeof(sk), array + sizeof(sk) * slot_at(order, position));
		if (!sk)
			continue;
		load = queued(sk);
		/* None is better. */
		if (load <= 0 && awaited(sk))
			return at;
		if (load < least) {
			least = load;
			best = at;
		}
	}
	return best;
}

/* A hash of the field; of the flow if the datagram ends before it. */
static __always_inline __u32 field_hash(struct sk_reuseport_md *ctx)
{
	__u64 words[FIELD_WORDS] = {}, hash = 0;
	__u32 length = rule.length;

	OPAQUE(length);
	if (!length || length > sizeof(words))
		return ctx->hash;
	if (bpf_skb_load_bytes(ctx, UDP_HEADER + rule.offset, words, length))
		return ctx->hash;
	for (int at = 0; at < FIELD_WORDS; at++) {
		/* A step of splitmix64: each bit of the field changes half of the bits of the result. */
		hash = (hash ^ words[at]) + 0x9e3779b97f4a7c15;
		hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
		hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
		hash ^= hash >> 31;
	}
	return hash >> 32;
}

static __always_inline int by_rule(struct sk_reuseport_md *ctx)
{
	__u32 zero = 0, count, position, start = 0, *turn = 0;
	const struct order *order = bpf_map_lookup_elem(&orders, &zero);

	if (!order)
		return SK_PASS;
	count = order->count;
	if (!count || count > MAX_SLOTS)
		return SK_PASS;
	if (rule.kind == ROUND_ROBIN || rule.kind == LEAST_LOADED) {
		turn = bpf_map_lookup_elem(&turns, &zero);
		if (!turn)
			return SK_PASS;
		/* CPUs start at different sockets. */
		start = (*turn + bpf_get_smp_processor_id()) % count;
	}
	switch (rule.kind) {
	case CPU:
		position = bpf_get_smp_processor_id();
		break;
	case ROUND_ROBIN:
		position = start;
		break;
	case LEAST_LOADED:
		position = start + least_loaded(order, count, start);
		break;
	case FIELD:
		position = scaled(field_hash(ctx), count);
		break;
	default:
		position = scaled(ctx->hash, count);
	}
	for (__u32 tried = 0; tried < MAX_SLOTS; tried++) {
		__u32 slot;
		__u64 *chosen;

		if (tried >= count)
			break;
		/* The verifier loses sight of the position here; if it counted along, it would check each one of each
		 * count. */
		slot = slot_at(order, (position + tried) % count);
		if (!bpf_sk_select_reuseport(ctx, &sockets, &slot, 0)) {
			chosen = bpf_map_lookup_elem(&datagrams, &slot);
			/* Softirqs of one CPU do not interrupt each other. */
			if (chosen)
				(*chosen)++;
			/* The next turn is that of the next socket, also if one was passed over. */
			if (turn)
				*turn += position - start + tried + 1;
			break;
		}
	}
	return SK_PASS;
}

SEC("sk_reuseport")
int udpath_select(struct sk_reuseport_md *ctx)
{
	return by_rule(ctx);
}

/* The slot whose socket a datagram asks, plus one; 0 for none. By its source port, if its source address is its destination
 * too: only this machine sends such a one. From elsewhere the kernel drops it as martian (fib_validate_source of
 * net/ipv4/fib_frontend.c). IPv6 has no such check, so a forged one reaches the asked socket, as it could by its hash.
 * Not inline: the verifier would check all that follows once for each of its ends. */
static __noinline __u32 asked_slot(struct sk_reuseport_md *ctx)
{
	const __u16 *source = ctx->data;
	__u32 addresses[8], port;
	const __u32 *slot;

	if ((void *)(source + 1) > ctx->data_end)
		return 0;
	port = *source;
	slot = bpf_map_lookup_elem(&queries, &port);
	if (!slot)
		return 0;
	if (ctx->eth_protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes_relative(ctx, IPV4_SOURCE, addresses, 8, BPF_HDR_START_NET))
			return 0;
		return addresses[0] == addresses[1] ? *slot + 1 : 0;
	}
	if (bpf_skb_load_bytes_relative(ctx, IPV6_SOURCE, addresses, 32, BPF_HDR_START_NET))
		return 0;
	for (int at = 0; at < 4; at++)
		if (addresses[at] != addresses[at + 4])
			return 0;
	return *slot + 1;
}

/* The same, and a socket can be asked on its own: also one whose slot is not in `orders`. */
SEC("sk_reuseport")
int udpath_multiply(struct sk_reuseport_md *ctx)
{
	__u32 asked = asked_slot(ctx), slot = asked - 1;

	if (!asked)
		return by_rule(ctx);
	/* If its socket was closed, no other one may answer in its place. */
	return bpf_sk_select_reuseport(ctx, &sockets, &slot, 0) ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
