/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The in-kernel load generator: each reply becomes the next request, in the driver.
 *
 *            user space: first request of each slot; re-sends lost requests
 *                 |  (ordinary UDP sockets, one per flow)
 *                 v
 *   server <-- request --- veth / NIC <---- XDP_TX ----+
 *      |                                               |  the program, on the client's interface:
 *      +------ reply ----> veth / NIC --> check, time, count, next request
 *
 * Two programs share everything here but the check and the next request: closed_loop.bpf.c has requests of its own that
 * an echo server returns whole, prebuilt_loop.bpf.c sends those of any protocol whose requests are known in advance.
 *
 * A slot is one transaction in flight. It has at most one live sequence number, so the side that advances `seq` owns
 * the transaction: the first reply (here), or user space when it gives up on it. Any later reply with an old number is
 * a duplicate or late. A slot belongs to one flow and is 64 bytes, one cache line, because different CPUs work on
 * different slots at the same time. For how `seq` is advanced, see take().
 *
 * Maps are arrays mapped into user space: reading results needs no system call.
 */
#ifndef UDPATH_CLOSED_LOOP_H
#define UDPATH_CLOSED_LOOP_H

#include "frame.h"
#include "verifier.h"

/* Latency buckets: 128 per power of two, so a bucket is at most 1/128 of its value wide (under 1 %). Values below 128
 * ns have a bucket each. 27 powers of two above that reach 2^34 ns = 17 s; longer latencies go into the last bucket. */
#define SUB_BITS 7
#define SUB (1 << SUB_BITS)
#define POWERS 27
#define BUCKETS (SUB * (POWERS + 1))

/* Fixed before loading, so that the verifier knows the values and every branch on them is free. */
const volatile __u64 timeout;     /* ns: a reply after this is late, whether or not its request was given up */
const volatile __u16 server_port; /* host byte order */
const volatile int server_ipv6; /* else the address is the first word */
const volatile __u32 server_address[4]; /* network byte order */
const volatile __u32 cpus_len;

#define REMEMBERED 4 /* lost requests per slot whose late replies are still distinguished from duplicates */

struct slot {
	__u64 seq;       /* the request in flight */
	__u64 sent;      /* when it was sent, CLOCK_MONOTONIC ns; 0 if nothing is in flight */
	__u32 flow;
	__u16 port;      /* the flow's source port, network byte order */
	__u16 home;      /* the CPU that sends the flow's requests, plus one; 0: whichever receives the reply */
	__u64 request;   /* prebuilt_loop: which request is in flight, or comes next */
	__u64 given_up[REMEMBERED]; /* numbers given up by user space, plus one; 0 once answered late */
};

struct flow {
	__u64 answered;  /* send time of its latest answered request: an older one is reordered */
	__u32 local[4];  /* its own address, as server_address */
	__u64 pad[5];
};

struct counters { /* one per CPU */
	__u64 ok;
	__u64 late;      /* first valid replies to requests that were given up */
	__u64 duplicate;
	__u64 reordered;
	__u64 corrupt;
	__u64 wrong_flow;
	__u64 received;  /* everything with the run's mark: the sum of the above and refusals, except reordered */
	__u64 ended;     /* of ok, overdue and refused: no request followed, because the loop was stopped or `unsent` */
	__u64 overdue;   /* first valid replies after the timeout, to requests that were not given up yet */
	__u64 clock;     /* CLOCK_MONOTONIC ns, as last read on this CPU */
	__u64 readers;   /* replies that may still use it: see clock() */
	__u64 refused;   /* first replies by which the server refuses the request */
	__u64 refused_late; /* the same, to requests that were given up */
	__u64 unsent;    /* next requests that did not fit the reply's frame */
	__u64 sampled;   /* replies copied for user space */
	__u64 elsewhere; /* datagrams to the flows' ports that the server did not send: not received */
	__u64 latency[BUCKETS];
};

#define RUNNING 1   /* else: count replies, send nothing */
#define CONTESTED 2 /* user space gives up requests: see take() */

struct control {
	__u64 state;   /* of the above, read once per reply */
	__u64 readers; /* further replies that share one clock reading: see clock() */
};

/* The loader sets the number of entries. */
SHARED_ARRAY(slots, 1, struct slot);
SHARED_ARRAY(flows, 1, struct flow);
SHARED_ARRAY(counts, 1, struct counters); /* one per CPU */

SHARED_ARRAY(control, 1, struct control);

/* By UDP port: which of our flows has it, plus one; 0 if none has. */
SHARED_ARRAY(ports, 65536, __u64);

/* Who else sends to the flows' ports: the first of them. A server with several addresses may answer from another one. */
struct stranger {
	__u64 state;   /* 0: none, 1: being written, 2: complete */
	__u32 address[4]; /* as server_address, of the same family */
	__u64 port;    /* host byte order */
	__u64 pad[4];
};

SHARED_ARRAY(stranger, 1, struct stranger);

/* By CPU: its queue of requests that other CPUs hand over. The loader sets the number of entries. */
MAP(homes, CPUMAP, 1, __u32, struct bpf_cpumap_val);

/* Sends the next request, which is in the reply's frame: from the flow's home. The reply came in on the CPU on which the server
 * sent it, and on a veth the CPU that sends a request is also the one that processes it at the server: without a home, flows would
 * follow the server's threads, and drift to one CPU, unlike those of a NIC, which stay where its hash puts them. */
static __always_inline int send_from_home(struct slot *slot, __u32 cpu)
{
	__u32 home = slot->home;

	if (!home || home - 1 == cpu)
		return XDP_TX;
	return bpf_redirect_map(&homes, home - 1, XDP_TX);
}

/* The bucket of a latency: see BUCKETS. No loop, and this instruction set has no count-leading-zeros. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u32 power = 0;
	__u64 v = ns >> SUB_BITS; /* power = bit length of v: 0 for values under SUB */

	if (v >> POWERS)
		return BUCKETS - 1;
	if (v >> 16) { power += 16; v >>= 16; }
	if (v >> 8) { power += 8; v >>= 8; }
	if (v >> 4) { power += 4; v >>= 4; }
	if (v >> 2) { power += 2; v >>= 2; }
	if (v >> 1) { power += 1; v >>= 1; }
	power += v;

	/* Octave p >= 1 holds [2^(p+6), 2^(p+7)) in steps of 2^(p-1). */
	if (!power)
		return (__u32)ns;
	return power * SUB + ((__u32)(ns >> (power - 1)) & (SUB - 1));
}

static __always_inline void record(struct counters *n, __u64 ns)
{
	__u32 at = bucket(ns);

	OPAQUE(at);
	if (at < BUCKETS) /* always true: for the verifier */
		n->latency[at]++; /* per CPU: softirqs do not preempt each other */
}

/* Advances the slot past `seq`; returns 0 if that has already happened. A locked instruction waits for all earlier
 * stores, a third of this program's time, so it is used only once user space competes for slots: user space sets
 * CONTESTED and waits until every program that may have missed it has finished. Two copies of one reply do not compete:
 * they have the same addresses, so the same queue and CPU handle them in sequence. */
static __always_inline int take(struct slot *slot, __u64 seq, __u64 state)
{
	if (state & CONTESTED)
		return __sync_val_compare_and_swap(&slot->seq, seq, seq + 1) == seq;
	if (slot->seq != seq)
		return 0;
	slot->seq = seq + 1;
	return 1;
}

/* Which of our flows was this frame sent to, plus one? 0 if it was none. */
static __always_inline __u32 receiver(struct frame *f)
{
	__u32 port = bpf_ntohs(f->udp->dest);
	__u64 *flow = bpf_map_lookup_elem(&ports, &port);

	return flow ? *flow : 0;
}

/* Is it the address `of`, in the family of the server? */
static __always_inline int same_address(struct frame *f, __u32 *address, const volatile __u32 *of)
{
	if (address[0] != of[0])
		return 0;
	return !f->ipv6 || (address[1] == of[1] && address[2] == of[2] && address[3] == of[3]);
}

static __always_inline __u32 *source(struct frame *f)
{
	return f->ipv6 ? (void *)&((struct ipv6hdr *)f->ip)->saddr : (void *)&((struct iphdr *)f->ip)->saddr;
}

static __always_inline __u32 *destination(struct frame *f)
{
	return f->ipv6 ? (void *)&((struct ipv6hdr *)f->ip)->daddr : (void *)&((struct iphdr *)f->ip)->daddr;
}

/* Did the server send it? No socket of a client would take what came from another address or port. */
static __always_inline int from_server(struct frame *f)
{
	return f->udp->source == bpf_htons(server_port) && f->ipv6 == server_ipv6 &&
	       same_address(f, source(f), server_address);
}

/* Counts a datagram to one of our ports that the server did not send, and keeps who sent the first. The kernel answers it as
 * it would a client's. */
static __always_inline int not_from_server(struct frame *f)
{
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0;
	struct stranger *first;
	struct counters *n;

	if (!receiver(f) || cpu >= cpus_len || f->ipv6 != server_ipv6)
		return XDP_PASS;
	n = bpf_map_lookup_elem(&counts, &cpu);
	first = bpf_map_lookup_elem(&stranger, &zero);
	if (!n || !first)
		return XDP_PASS;
	n->elsewhere++;
	if (!first->state && __sync_val_compare_and_swap(&first->state, 0, 1) == 0) {
		__u32 *from = source(f);

		first->address[0] = from[0];
		if (f->ipv6) {
			first->address[1] = from[1];
			first->address[2] = from[2];
			first->address[3] = from[3];
		}
		first->port = bpf_ntohs(f->udp->source);
		__sync_lock_test_and_set(&first->state, 2);
	}
	return XDP_PASS;
}

static __always_inline __u64 read_clock(struct counters *n)
{
	n->clock = bpf_ktime_get_ns();
	return n->clock;
}

/* The time. Reading the clock takes a quarter of this program, so the next reply of the same poll reuses a reading: it
 * is then stale by the time of one reply, a tenth of a microsecond. It is a nanosecond later, so that the order of two
 * requests is known by their send times. Never beyond the poll, whose end poll_ended() sees: the next reply may come any
 * time later. Without that tracepoint, every reply reads the clock. */
static __always_inline __u64 clock(struct counters *n, struct control *shared)
{
	if (n->readers) {
		n->readers--;
		n->clock++;
		return n->clock;
	}
	n->readers = shared->readers;
	return read_clock(n);
}

/* Has user space given up request `seq`? True once, for its first reply. */
static __always_inline int given_up(struct slot *slot, __u64 seq)
{
	int i;

#pragma unroll
	for (i = 0; i < REMEMBERED; i++) {
		if (__sync_val_compare_and_swap(&slot->given_up[i], seq + 1, 0) == seq + 1)
			return 1;
	}
	return 0;
}

/* A valid reply to a request that was given up. It was sent longer ago than the timeout, so it is reordered if a request
 * sent since then has been answered. */
static __always_inline void late(struct flow *flow, __u64 now, struct counters *n)
{
	n->late++;
	if (flow->answered + timeout > now)
		n->reordered++;
}

/* The first valid reply to the request in flight. */
static __always_inline void answered(struct flow *flow, __u64 sent, __u64 now, struct counters *n)
{
	if (now - sent <= timeout)
		n->ok++;
	else
		n->overdue++;
	record(n, now - sent);

	if (sent < flow->answered)
		n->reordered++;
	else
		flow->answered = sent;
}

/* The UDP checksum of the next request, whose payload sums up to `sum`. IPv4 needs none (0 = not used, RFC 768), and a
 * NIC would have verified it, so the server is not charged for it; IPv6 requires it (RFC 8200, 8.1). */
static __always_inline void checksum(struct frame *f, __u64 sum)
{
	__u32 *addr;
	int i;

	f->udp->check = 0;
	if (!f->ipv6)
		return;

	addr = (void *)&((struct ipv6hdr *)f->ip)->saddr;
#pragma unroll
	for (i = 0; i < 8; i++)
		sum += addr[i];
	sum += f->udp->len;             /* pseudo header: length ... */
	sum += bpf_htons(IPPROTO_UDP);  /* ... and protocol */
	sum += f->udp->source;
	sum += f->udp->dest;
	sum += f->udp->len;
	f->udp->check = ~fold(sum);
	if (!f->udp->check)
		f->udp->check = 0xffff;
}

/* napi:napi_poll, at the end of each poll of any interface on this CPU. */
SEC("raw_tracepoint")
int poll_ended(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct counters *n = bpf_map_lookup_elem(&counts, &cpu);

	if (n)
		n->readers = 0;
	return 0;
}

#endif
