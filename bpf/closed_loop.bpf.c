/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The in-kernel load generator: each reply becomes the next request, in the driver.
 *
 *            user space: first request of each slot; re-sends lost requests
 *                 |  (ordinary UDP sockets, one per flow)
 *                 v
 *   server <-- request --- veth / NIC <---- XDP_TX ----+
 *      |                                               |  this program, on the client's interface:
 *      +------ reply ----> veth / NIC --> check, time, count, next request
 *
 * A slot is one transaction in flight. It has at most one live sequence number, so the side that advances `seq` owns
 * the transaction: the first reply (here), or user space when it gives up on it. Any later reply with an old number is
 * a duplicate or late. A slot belongs to one flow and is 64 bytes, one cache line, because different CPUs work on
 * different slots at the same time. For how `seq` is advanced, see take().
 *
 * Payload of a request, all little endian, and echoed in the reply:
 *   0  magic  4    4  slot  4    8  seq  8    16  run  4    20  check  4    24  body: constant bytes
 *
 * Maps are arrays mapped into user space: reading results needs no system call.
 */
#include "frame.h"
#include "verifier.h"

#define MAGIC 0x31504c75 /* "uLP1" */
#define HEADER 24
#define MAX_WORDS 1200 /* of a body: jumbo frames; a bound the verifier can see */

/* Latency buckets: 128 per power of two, so a bucket is at most 1/128 of its value wide (under 1 %). Values below 128
 * ns have a bucket each. 27 powers of two above that reach 2^34 ns = 17 s; longer latencies go into the last bucket. */
#define SUB_BITS 7
#define SUB (1 << SUB_BITS)
#define POWERS 27
#define BUCKETS (SUB * (POWERS + 1))

/* Fixed before loading, so that the verifier knows the lengths and every branch on them is free. */
const volatile __u32 size;        /* payload bytes, HEADER + 4 .. */
const volatile __u32 body_words;  /* whole 64-bit words of the body */
const volatile __u64 body_sum;    /* their sum, weighted by position: see body() */
const volatile __u64 tail;        /* the last eight bytes of the payload: the body need not be a multiple of 8 */
const volatile __u32 body_check;  /* the body's contribution to the UDP checksum, a one's complement sum */
const volatile __u32 run;         /* random for each run: distinguishes replies to an earlier run */
const volatile __u64 timeout;     /* ns: a reply after this is late, whether or not its request was given up */
const volatile __u16 server_port; /* host byte order */
const volatile __u32 cpus_len;

#define REMEMBERED 4 /* lost requests per slot whose late replies are still distinguished from duplicates */

struct slot {
	__u64 seq;       /* the request in flight */
	__u64 sent;      /* when it was sent, CLOCK_MONOTONIC ns; 0 if nothing is in flight */
	__u32 flow;
	__u16 port;      /* the flow's source port, network byte order */
	__u16 pad0;
	__u64 pad1;
	__u64 given_up[REMEMBERED]; /* numbers given up by user space, plus one; 0 once answered late */
};

struct flow {
	__u64 answered;  /* send time of its latest answered request: an older one is reordered */
	__u64 pad[7];
};

struct counters { /* one per CPU */
	__u64 ok;
	__u64 late;      /* first valid replies to requests that were given up */
	__u64 duplicate;
	__u64 reordered;
	__u64 corrupt;
	__u64 wrong_flow;
	__u64 received;  /* everything with the run's mark: the sum of the above except reordered */
	__u64 ended;     /* of ok and overdue: the loop was stopped, so no request followed */
	__u64 overdue;   /* first valid replies after the timeout, to requests that were not given up yet */
	__u64 clock;     /* CLOCK_MONOTONIC ns, as last read on this CPU */
	__u64 readers;   /* replies that may still use it: see clock() */
	__u64 pad[5];
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

/* One bit per UDP port: does it belong to one of our flows? Needed only for replies too damaged to identify their flow.
 * */
SHARED_ARRAY(ports, 65536 / 64, __u64);

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

/* Ties slot, number and run together, so that a bit flip in any of them is detected as corruption rather than mistaken
 * for another transaction. The multiplier is odd and its upper half mixes ones and zeros (2^64 / golden ratio): every
 * single-bit flip shows in the upper bits. */
static __always_inline __u32 header_check(__u32 slot, __u64 seq)
{
	return (((seq + ((__u64)slot << 32)) ^ run) * 0x9e3779b97f4a7c15ull) >> 32;
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

/* Was this frame sent to one of our flows? */
static __always_inline int ours(struct frame *f)
{
	__u32 port = bpf_ntohs(f->udp->dest);
	__u32 word = port / 64;
	__u64 *bits = bpf_map_lookup_elem(&ports, &word);

	return bits && (*bits >> (port % 64) & 1);
}

static __always_inline __u64 read_clock(struct counters *n)
{
	n->clock = bpf_ktime_get_ns();
	return n->clock;
}

/* The time. Reading the clock takes a quarter of this program, so the next reply of the same poll reuses a reading: it
 * is then stale by the time of one reply, a tenth of a microsecond. Never beyond the poll, whose end poll_ended() sees:
 * the next reply may come any time later. Without that tracepoint, every reply reads the clock. */
static __always_inline __u64 clock(struct counters *n, struct control *shared)
{
	if (n->readers) {
		n->readers--;
		return n->clock;
	}
	n->readers = shared->readers;
	return read_clock(n);
}

/* A reply to a request that is no longer in flight: late the first time, if user space has given it up. It was sent
 * longer ago than the timeout, so it is reordered if a request sent since then has been answered. */
static __always_inline void stale(struct slot *slot, struct flow *flow, __u64 seq, __u64 now, struct counters *n)
{
	int i;

#pragma unroll
	for (i = 0; i < REMEMBERED; i++) {
		if (__sync_val_compare_and_swap(&slot->given_up[i], seq + 1, 0) == seq + 1) {
			n->late++;
			if (flow->answered + timeout > now)
				n->reordered++;
			return;
		}
	}
	n->duplicate++;
}

/* Is the body unchanged? Each word is multiplied by an odd weight of its own before it is added: an odd weight loses no
 * bit of a changed word, and swapped words change the sum. The products are independent of each other. The last eight
 * bytes, which overlap the last word, are compared directly. */
static __always_inline int body(void *payload)
{
	__u64 *words = payload + HEADER;
	__u64 sum = 0, weight = 1;
	__u32 n = body_words; /* read once: the compiler cannot assume that it is constant */
	__u32 i;

	for (i = 0; i < n && i < MAX_WORDS; i++, weight += 2)
		sum += words[i] * weight;
	return sum == body_sum && *(__u64 *)(payload + size - 8) == tail;
}

/* The UDP checksum of the next request. IPv4 needs none (0 = not used, RFC 768), and a NIC would have verified it, so
 * the server is not charged for it; IPv6 requires it (RFC 8200, 8.1). */
static __always_inline void checksum(struct frame *f, __u32 *header)
{
	__u64 sum = body_check;
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
#pragma unroll
	for (i = 0; i < HEADER / 4; i++)
		sum += header[i];
	f->udp->check = ~fold(sum);
	if (!f->udp->check)
		f->udp->check = 0xffff;
}

SEC("xdp")
int closed_loop(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 zero = 0, index;
	__u64 now, seq, sent, state;
	struct control *shared;
	struct counters *n;
	struct frame f;
	struct slot *slot;
	struct flow *flow;
	__u32 *header;

	if (!parse(data, data_end, &f) || f.udp->source != bpf_htons(server_port))
		return XDP_PASS;
	if (cpu >= cpus_len)
		return XDP_PASS;
	n = bpf_map_lookup_elem(&counts, &cpu);
	shared = bpf_map_lookup_elem(&control, &zero);
	if (!n || !shared)
		return XDP_PASS;
	state = shared->state;

	header = f.payload;
	if ((void *)header + HEADER > data_end || header[0] != MAGIC || header[4] != run) {
		if (!ours(&f))
			return XDP_PASS;
		n->received++;
		goto corrupt;
	}
	n->received++;
	index = header[1];
	seq = *(__u64 *)(header + 2);
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot || header[5] != header_check(index, seq) || f.payload_len != size || f.payload + size > data_end)
		goto corrupt;
	if (!body(f.payload))
		goto corrupt;
	if (f.udp->dest != slot->port) {
		n->wrong_flow++;
		return XDP_DROP;
	}

	if (seq > slot->seq)
		goto corrupt; /* a number that was never sent */
	index = slot->flow;
	flow = bpf_map_lookup_elem(&flows, &index);
	if (!flow)
		goto corrupt;
	now = clock(n, shared);
	if (!take(slot, seq, state)) {
		stale(slot, flow, seq, now, n);
		return XDP_DROP;
	}

	sent = slot->sent;
	if (now < sent) /* sent by another CPU after this one last read the clock */
		now = read_clock(n);
	if (now - sent <= timeout)
		n->ok++;
	else
		n->overdue++;
	record(n, now - sent);

	if (sent < flow->answered)
		n->reordered++;
	else
		flow->answered = sent;

	if (!(state & RUNNING)) {
		slot->sent = 0; /* idle: nothing in flight */
		n->ended++;
		return XDP_DROP;
	}
	slot->sent = now;
	*(__u64 *)(header + 2) = seq + 1;
	header[5] = header_check(header[1], seq + 1);
	turn_round(&f);
	checksum(&f, header);
	return XDP_TX;

corrupt:
	n->corrupt++;
	return XDP_DROP;
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

char LICENSE[] SEC("license") = "Dual MIT/GPL";
