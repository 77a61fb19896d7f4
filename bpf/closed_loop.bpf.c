/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The generator that lives in the kernel: each reply becomes the next request, in the driver.
 *
 *            user space: first request of each slot; re-sends what got lost
 *                 |  (ordinary UDP sockets, one per flow)
 *                 v
 *   server <-- request --- veth / NIC <---- XDP_TX ----+
 *      |                                               |  this program, on the client's interface:
 *      +------ reply ----> veth / NIC --> check, time, count, next request
 *
 * A slot is one transaction in flight. It has at most one live sequence number, so whoever moves `seq` on owns the
 * transaction: the reply that comes first (here), or user space that gives it up as lost. Everything later with an
 * old number is a duplicate or late. Slots belong to one flow and are 64 bytes, one cache line, because different
 * CPUs work on different slots at the same time. Who moves `seq` on, and how: see take().
 *
 * Payload of a request, all little endian, read back from the reply:
 *   0  magic  4    4  slot  4    8  seq  8    16  run  4    20  check  4    24  body: bytes that never change
 *
 * Maps are arrays mapped into user space: reading results costs no system call.
 */
#include "frame.h"

#define MAGIC 0x31504c75 /* "uLP1" */
#define HEADER 24
#define MAX_WORDS 1200 /* of a body: jumbo frames; a bound that the verifier can see */

/* Latency buckets: 128 per power of two, so a bucket is at most 1/128 of its value wide (under 1 %).
 * Values below 128 ns have a bucket each. 27 powers of two above that reach 2^34 ns = 17 s; more is put in the last. */
#define SUB_BITS 7
#define SUB (1 << SUB_BITS)
#define POWERS 27
#define BUCKETS (SUB * (POWERS + 1))

/* Fixed before loading, so that the verifier knows the lengths and every branch on them is free. */
const volatile __u32 size;        /* payload bytes, HEADER + 4 .. */
const volatile __u32 body_words;  /* whole 64-bit words of the body */
const volatile __u64 body_sum;    /* their sum, each weighted by where it stands: see body() */
const volatile __u64 tail;        /* the last eight bytes of the payload: the body need not be whole words */
const volatile __u32 body_check;  /* the whole body's share of the UDP checksum, a one's complement sum */
const volatile __u32 run;         /* drawn for each run: replies of an earlier one are not ours */
const volatile __u64 timeout;     /* ns: a reply later than this is late, whether its request was given up or not */
const volatile __u16 server_port; /* host byte order */
const volatile __u32 cpus_len;

#define REMEMBERED 4 /* lost requests per slot whose late replies are still told from duplicates */

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
	__u64 answered;  /* when the latest of its answered requests was sent: an older one is overtaken */
	__u64 pad[7];
};

struct counters { /* one per CPU */
	__u64 ok;
	__u64 late;      /* first valid replies to requests that were given up */
	__u64 duplicate;
	__u64 reordered;
	__u64 corrupt;
	__u64 wrong_flow;
	__u64 received;  /* everything that carries the run's mark: the sum of the above but reordered */
	__u64 ended;     /* of ok and overdue: the loop was stopped, so no request followed */
	__u64 overdue;   /* first valid replies after the timeout, to requests that were not given up yet */
	__u64 clock;     /* CLOCK_MONOTONIC ns, as last read here */
	__u64 readers;   /* replies that may still go by it: see clock() */
	__u64 pad[5];
	__u64 latency[BUCKETS];
};

#define RUNNING 1   /* else: count what comes, send nothing */
#define CONTESTED 2 /* user space gives requests up: see take() */

struct control {
	__u64 state;   /* of the above, read once per reply */
	__u64 readers; /* replies after the first that go by one reading of the clock: see clock() */
};

/* An array that user space maps too. Its length is set before loading. */
#define SHARED_ARRAY(name, element)                \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, element);            \
	} name SEC(".maps")

SHARED_ARRAY(slots, struct slot);
SHARED_ARRAY(flows, struct flow);
SHARED_ARRAY(counts, struct counters); /* one per CPU */
SHARED_ARRAY(control, struct control);

/* One bit per UDP port: is it one of our flows'? Only asked for replies that are too damaged to say so themselves. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536 / 64);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

/* The bucket of a latency: see BUCKETS. No loop, no count-leading-zeros in this instruction set. */
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

	if (at < BUCKETS) /* always: for the verifier */
		n->latency[at]++; /* this CPU's own: softirq does not preempt itself */
}

/* Ties slot, number and run together, so that a flipped bit in any of them is damage and not another transaction. The
 * multiplier is odd and its high half full of ones and zeros (2^64 / golden ratio): every single flip shows above. */
static __always_inline __u32 header_check(__u32 slot, __u64 seq)
{
	return (((seq + ((__u64)slot << 32)) ^ run) * 0x9e3779b97f4a7c15ull) >> 32;
}

/* Moves the slot on from `seq`; 0 if it is past that already. A locked instruction waits for every store before it,
 * which is a third of this program's time, so it is spent only once user space competes for slots: it says so in
 * CONTESTED and waits until no program that has not seen it still runs. Two copies of one reply do not compete:
 * they have the same addresses, so the same queue and CPU handle them, one after the other. */
static __always_inline int take(struct slot *slot, __u64 seq, __u64 state)
{
	if (state & CONTESTED)
		return __sync_val_compare_and_swap(&slot->seq, seq, seq + 1) == seq;
	if (slot->seq != seq)
		return 0;
	slot->seq = seq + 1;
	return 1;
}

/* Did this frame come to one of our flows? */
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

/* The time. Reading the clock is a quarter of this program, so a reading also serves the next reply of the same poll: it
 * is then older by what one reply takes, a tenth of a microsecond. No further than the poll, whose end poll_ended()
 * hears of: what comes after it may come any time later. Where nobody hears of it, every reply reads. */
static __always_inline __u64 clock(struct counters *n, struct control *shared)
{
	if (n->readers) {
		n->readers--;
		return n->clock;
	}
	n->readers = shared->readers;
	return read_clock(n);
}

/* A reply to a request that is not in flight any more: late the first time, if user space has given it up. It was sent
 * longer than the timeout ago, so it is overtaken if a request sent since then is answered. */
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

/* Is the body what was sent? Each word is weighted by an odd number of its own before it is added: an odd weight loses
 * no bit of a changed word, and words that changed places weigh something else. The products do not wait for each
 * other. The last eight bytes, which overlap the last word, are compared as they are. */
static __always_inline int body(void *payload)
{
	__u64 *words = payload + HEADER;
	__u64 sum = 0, weight = 1;
	__u32 n = body_words; /* read once: the compiler may not assume that it stays */
	__u32 i;

	for (i = 0; i < n && i < MAX_WORDS; i++, weight += 2)
		sum += words[i] * weight;
	return sum == body_sum && *(__u64 *)(payload + size - 8) == tail;
}

/* The UDP checksum of the next request. IPv4 needs none (0 = not used, RFC 768) and a NIC would have checked it, so
 * the server is not charged for it; IPv6 must have it (RFC 8200, 8.1). */
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
	if (now < sent) /* sent by another CPU since this one last read the clock */
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
		slot->sent = 0; /* idle: nothing in flight any more */
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
