/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The in-kernel load generator (closed_loop.h) against an echo server, which returns every byte: each is checked here.
 *
 * Payload of a request, all little endian, and echoed in the reply:
 *   0  magic  4    4  slot  4    8  seq  8    16  run  4    20  check  4    24  body: constant bytes
 */
#include "closed_loop.h"

#define MAGIC 0x31504c75 /* "uLP1" */
#define HEADER 24
#define MAX_WORDS 1200 /* of a body: jumbo frames; a bound the verifier can see */

/* Fixed before loading. */
const volatile __u32 size;        /* payload bytes, HEADER + 4 .. */
const volatile __u32 body_words;  /* whole 64-bit words of the body */
const volatile __u64 body_sum;    /* their sum, weighted by position: see body() */
const volatile __u64 tail;        /* the last eight bytes of the payload: the body need not be a multiple of 8 */
const volatile __u32 body_check;  /* the body's contribution to the UDP checksum, a one's complement sum */
const volatile __u32 run;         /* random for each run: distinguishes replies to an earlier run */

/* Ties slot, number and run together, so that a bit flip in any of them is detected as corruption rather than mistaken
 * for another transaction. The multiplier is odd and its upper half mixes ones and zeros (2^64 / golden ratio): every
 * single-bit flip shows in the upper bits. */
static __always_inline __u32 header_check(__u32 slot, __u64 seq)
{
	return (((seq + ((__u64)slot << 32)) ^ run) * 0x9e3779b97f4a7c15ull) >> 32;
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

/* The sum of the next request's payload. Only IPv6 uses it. */
static __always_inline __u64 payload_sum(__u32 *header)
{
	__u64 sum = body_check;
	int i;

#pragma unroll
	for (i = 0; i < HEADER / 4; i++)
		sum += header[i];
	return sum;
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

	if (!parse(data, data_end, &f))
		return XDP_PASS;
	if (!from_server(&f))
		return not_from_server(&f);
	if (cpu >= cpus_len)
		return XDP_PASS;
	n = bpf_map_lookup_elem(&counts, &cpu);
	shared = bpf_map_lookup_elem(&control, &zero);
	if (!n || !shared)
		return XDP_PASS;
	state = shared->state;

	header = f.payload;
	if ((void *)header + HEADER > data_end || header[0] != MAGIC || header[4] != run) {
		/* Too damaged to name its slot: it is ours if its port is. */
		if (!receiver(&f))
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
	index = slot->flow;
	flow = bpf_map_lookup_elem(&flows, &index);
	if (!flow)
		goto corrupt;
	if (f.udp->dest != slot->port || !same_address(&f, destination(&f), flow->local)) {
		n->wrong_flow++;
		return XDP_DROP;
	}

	if (seq > slot->seq)
		goto corrupt; /* a number that was never sent */
	now = clock(n, shared);
	if (!take(slot, seq, state)) {
		if (given_up(slot, seq))
			late(flow, now, n);
		else
			n->duplicate++;
		return XDP_DROP;
	}

	sent = slot->sent;
	if (now < sent) /* sent by another CPU after this one last read the clock */
		now = read_clock(n);
	answered(flow, sent, now, n);

	if (!(state & RUNNING)) {
		slot->sent = 0; /* idle: nothing in flight */
		n->ended++;
		return XDP_DROP;
	}
	slot->sent = now;
	*(__u64 *)(header + 2) = seq + 1;
	header[5] = header_check(header[1], seq + 1);
	turn_round(&f);
	checksum(&f, f.ipv6 ? payload_sum(header) : 0);
	return send_from_home(slot, cpu);

corrupt:
	n->corrupt++;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
