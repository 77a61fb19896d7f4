/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * How long a datagram takes inside this host, by sampling.
 *
 *   net:netif_receive_skb ──> sock:sk_data_ready ──> sock:sock_recv_length
 *      │ sampled: a slot         │ tail of the queue    │ no longer in the queue: this call read it
 *      ▼                         ▼                      ▼
 *   slots[skb] ........... lines[socket] ........... sockets[bound] += both times, and their sum; the slot is freed
 *                                    skb:kfree_skb: dropped, the slot is freed
 *
 * sk_data_ready names the socket but not the datagram; the datagram is the one at the tail of its queue. When a call
 * has read something, the socket's oldest sampled datagram is checked: once it has left the queue, it is on no list.
 * The memory of skbs is used for nothing else, so reading it is safe; and a new packet at the same address invalidates
 * the earlier sample.
 *
 * A packet that is not sampled costs one slot lookup. A slot belongs to the packet whose address it holds, and a packet
 * is at one step at a time, so no two programs write the same slot. A line is written only by the holder of its gate.
 */
#include "kernel.h"
#include "sample.h"
#include "verifier.h"

/* A power of two. Maximum number of sampled packets in flight. */
#define SLOTS 4096
/* A packet this old is not expected any more, ns: it was forwarded, or its socket is not being read. */
#define STALE 30000000000ULL
/* Each CPU samples about this many packets in a window. Fewer: rare delays are missed; more: the overhead becomes
 * noticeable. */
#define WANTED 128
/* Sampled datagrams per socket; a power of two. Fewer: poor coverage of a long queue; more: memory. */
#define LINE 128
/* Datagrams checked after a call: the one it read, and those whose calls found the gate closed. */
#define LOOKS 4
/* Attempts to enter a line's gate before the work is left to the next call. */
#define MAX_ATTEMPTS 4

/* Sizes and word order: crates/bpf/src/trace/delays.rs. 16 buckets per power of two, so a bucket is at most 1/16 of its
 * value wide; up to 2^37 ns = 137 s. */
#define SUB_BITS 4
#define SUB (1 << SUB_BITS)
#define POWERS 33
#define BUCKETS (SUB * (POWERS + 1))

struct slot {
	__u64 skb;
	__u64 entered;
	__u64 enqueued;
	struct bound bound;
};

MAP(slots, ARRAY, SLOTS, __u32, struct slot);

struct spread {
	__u64 count;
	__u64 ns;
	__u64 longest;
	__u64 buckets[BUCKETS];
};

struct delays {
	struct spread to_socket;
	struct spread to_reader;
	struct spread whole; /* both together */
};

MAP(sockets, HASH, 256, struct bound, struct delays);

/* Initial value for a socket: too large for the stack. */
MAP(none, ARRAY, 1, __u32, struct delays);

/* The entry time distinguishes a packet from an earlier one at the same address. */
struct waiting {
	__u64 skb;
	__u64 entered;
};

/* Sampled datagrams in a socket's queue, oldest first. */
struct line {
	__u64 gate; /* 1: held */
	__u64 head;
	__u64 tail;
	struct waiting of[LINE];
};

MAP(lines, LRU_HASH, 512, __u64, struct line);

/* Initial value of a line: too large for the stack. */
MAP(no_line, ARRAY, 1, __u32, struct line);

struct sampler {
	__u64 seen;
	__u64 sampled;
	__u64 no_slot;   /* the slot was taken by another packet */
	__u64 dropped;   /* of the sampled packets */
	__u64 no_room;   /* in the socket's line, or for the socket */
	__u64 missed;    /* read, but the call was not seen */
	struct sampling rate;
	__u64 next;      /* packets until the next sample */
};

PER_CPU(sampler, struct sampler);

static __always_inline struct sampler *own_sampler(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sampler, &zero);
}

static __always_inline struct slot *slot_of(__u64 skb)
{
	/* Addresses are multiples of 64, and neighbors are used together. */
	__u32 index = (skb >> 6 ^ skb >> 18) & (SLOTS - 1);

	return bpf_map_lookup_elem(&slots, &index);
}

/* Is this packet to be sampled? */
static __always_inline int is_sampled(struct sampler *sampler)
{
	__u64 every = interval(&sampler->rate, WANTED);

	sampler->seen++;
	if (sampler->next) {
		sampler->next--;
		return 0;
	}
	sampler->next = every - 1;
	return 1;
}

/* net:netif_receive_skb(skb) */
SEC("raw_tracepoint")
int netif_receive_skb(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 address = ctx->args[0], old, now;
	const struct sk_buff *skb = (void *)address;
	struct sampler *sampler = own_sampler();
	struct slot *slot = slot_of(address);
	struct ports ports;

	if (!sampler || !slot)
		return 0;
	old = slot->skb;
	/* Memory of a packet whose end was missed. */
	if (old == address)
		slot->skb = old = 0;
	if (!is_sampled(sampler))
		return 0;
	/* The network header is not set yet: it starts at data. */
	if (!read_ports(&ports, BPF_CORE_READ(skb, data), BPF_CORE_READ(skb, protocol)))
		return 0;
	now = bpf_ktime_get_ns();
	if ((old && now - slot->entered < STALE) || __sync_val_compare_and_swap(&slot->skb, old, 1) != old) {
		sampler->no_slot++;
		return 0;
	}
	slot->enqueued = 0;
	slot->entered = now;
	slot->skb = address;
	sampler->sampled++;
	return 0;
}

/* The packet at the tail of a UDP socket's queue, even if its reader has just taken the whole queue. */
static __always_inline __u64 last_of(const struct sock *sk)
{
	const void *queue = (const void *)sk + bpf_core_field_offset(struct sock, sk_receive_queue);
	const void *last = BPF_CORE_READ(sk, sk_receive_queue.prev);

	if (last != queue)
		return (__u64)last;
	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP)
		return 0;
	return (__u64)BPF_CORE_READ((const struct udp_sock *)sk, reader_queue.prev);
}

static __always_inline int enter(struct line *line)
{
	int i;

#pragma unroll
	for (i = 0; i < MAX_ATTEMPTS; i++)
		if (!__sync_val_compare_and_swap(&line->gate, 0, 1))
			return 1;
	return 0;
}

static __always_inline void leave(struct line *line)
{
	__sync_lock_test_and_set(&line->gate, 0);
}

static __always_inline int line_up(__u64 sk, const struct slot *slot)
{
	struct line *line = bpf_map_lookup_elem(&lines, &sk);
	struct waiting *last;
	__u32 zero = 0;
	int room;

	if (!line) {
		struct line *empty = bpf_map_lookup_elem(&no_line, &zero);

		if (empty)
			bpf_map_update_elem(&lines, &sk, empty, BPF_NOEXIST);
		line = bpf_map_lookup_elem(&lines, &sk);
	}
	if (!line || !enter(line))
		return 0;
	room = line->tail - line->head < LINE;
	if (room) {
		last = &line->of[line->tail++ & (LINE - 1)];
		last->skb = slot->skb;
		last->entered = slot->entered;
	}
	leave(line);
	return room;
}

/* sock:sk_data_ready(sk) */
SEC("raw_tracepoint")
int sk_data_ready(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sock *sk = (void *)ctx->args[0];
	__u64 skb = last_of(sk);
	struct slot *slot = slot_of(skb);
	struct sampler *sampler;

	if (!slot || !skb || slot->skb != skb || slot->enqueued)
		return 0;
	read_bound(&slot->bound, sk);
	slot->enqueued = bpf_ktime_get_ns();
	if (line_up((__u64)sk, slot))
		return 0;
	slot->skb = 0;
	sampler = own_sampler();
	if (sampler)
		sampler->no_room++;
	return 0;
}

static __always_inline __u32 bucket(__u64 ns)
{
	__u32 octave = power(ns >> SUB_BITS);

	if (ns < SUB)
		return ns;
	if (octave >= POWERS)
		return BUCKETS - 1;
	/* Octave p holds [2^(p+4), 2^(p+5)) in steps of 2^p. */
	return (octave + 1) * SUB + ((__u32)(ns >> octave) & (SUB - 1));
}

/* Readers run on all CPUs: add atomically. */
static __always_inline void add(struct spread *spread, __u64 ns)
{
	__u32 at = bucket(ns);

	OPAQUE(at);
	if (at >= BUCKETS)
		return;
	__sync_fetch_and_add(&spread->count, 1);
	__sync_fetch_and_add(&spread->ns, ns);
	__sync_fetch_and_add(&spread->buckets[at], 1);
	if (ns > spread->longest)
		spread->longest = ns;
}

static __always_inline void count(struct slot *slot, struct sampler *sampler)
{
	struct delays *delays = bpf_map_lookup_elem(&sockets, &slot->bound);
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;

	if (!delays) {
		struct delays *empty = bpf_map_lookup_elem(&none, &zero);

		if (empty)
			bpf_map_update_elem(&sockets, &slot->bound, empty, BPF_NOEXIST);
		delays = bpf_map_lookup_elem(&sockets, &slot->bound);
	}
	if (!delays) {
		sampler->no_room++;
		return;
	}
	add(&delays->to_socket, slot->enqueued - slot->entered);
	add(&delays->to_reader, now - slot->enqueued);
	add(&delays->whole, now - slot->entered);
}

/* Is it in a queue? Packets about to be freed are in singly linked lists, by `next`. */
static __always_inline int is_queued(const struct waiting *waiting)
{
	const struct sk_buff *skb = (void *)waiting->skb;
	struct slot *slot = slot_of(waiting->skb);

	if (!slot || slot->skb != waiting->skb || slot->entered != waiting->entered)
		return 0;
	return BPF_CORE_READ(skb, prev) != 0;
}

/* 1 if the oldest left the line, 0 if it is still in the socket's queue. */
static __always_inline int look(struct line *line, struct sampler *sampler)
{
	struct waiting *oldest = &line->of[line->head & (LINE - 1)];
	struct waiting *second = &line->of[(line->head + 1) & (LINE - 1)];
	struct slot *slot = slot_of(oldest->skb);

	if (!slot)
		return 0;
	if (!is_queued(oldest)) {
		if (slot->skb == oldest->skb && slot->entered == oldest->entered) {
			count(slot, sampler);
			slot->skb = 0;
		} else {
			sampler->missed++;
		}
	} else if (line->tail - line->head > 1 && !is_queued(second)) {
		/* Later packets have left: the memory was reused, and this one is in another socket's queue. */
		sampler->missed++;
	} else {
		return 0;
	}
	line->head++;
	return 1;
}

/* sock:sock_recv_length(sk, ret, flags) */
SEC("raw_tracepoint")
int sock_recv_length(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 sk = ctx->args[0];
	struct line *line = bpf_map_lookup_elem(&lines, &sk);
	struct sampler *sampler;
	int i;

	if (!line || line->head == line->tail)
		return 0;
	sampler = own_sampler();
	if (!sampler || !enter(line))
		return 0;
	for (i = 0; i < LOOKS && line->head != line->tail; i++)
		if (!look(line, sampler))
			break;
	leave(line);
	return 0;
}

/* skb:kfree_skb(skb, location, reason, rx_sk) */
SEC("raw_tracepoint")
int kfree_skb(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 skb = ctx->args[0];
	struct slot *slot = slot_of(skb);
	struct sampler *sampler = own_sampler();

	if (!slot || !sampler || slot->skb != skb)
		return 0;
	slot->skb = 0;
	sampler->dropped++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
