/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The in-kernel load generator (closed_loop.h) for any protocol whose requests are known before the run.
 *
 *   reply  --> of our port? length? rules? identifier: which slot, which of its requests?
 *   request <-- the next one of `requests`, with the identifier of this transaction
 *
 * An identifier is a field of the request that the server copies into its reply. Before it is scrambled, it holds
 *
 *   high  | number: low bits of the slot's seq | flow, if there is room | place: slot within the flow |  low
 *
 * so a reply identifies its slot, by the receiving port if not by the flow, and an old number tells stale replies.
 *
 * All slots send the same requests in turn, each with an identifier that is written when it is sent. Signed requests must not
 * be changed: then each slot sends requests of its own (`own_mask`), written with the identifiers of their transactions.
 * Without an identifier (width 0) a flow has one slot, and any reply to its port answers.
 *
 * Rules see a few fields of a reply. User space sees a sample of whole replies, as many as it can check: see sample().
 */
#include "closed_loop.h"
#include "resize.h"

#define BLOCK_WORDS 8  /* one cache line */
#define MAX_BLOCKS 24  /* of a request: a frame of 1500 bytes; a bound the verifier can see */
#define MAX_RULES 12
#define MAX_ELEMENTS 2
#define MAX_LENGTH 4   /* bytes of a length: more than any datagram needs */
#define SAMPLES 32     /* per CPU: as many replies are copied between two readings by user space */
#define SAMPLE_BYTES 2032
/* A valid reply to a request of the same slot this many requests ago is a duplicate; to an older one, it is corrupt: of
 * the numbers that a short identifier can hold, most are in the past. Lower: slow duplicates are called corrupt. Higher:
 * damaged identifiers are called duplicates. */
#define RECENT 256

/* Odd, with an inverse modulo any power of two: neighbouring slots and numbers get unlike identifiers, and a flipped bit
 * changes all bits of the unscrambled value from its position up. */
#define SCRAMBLE 0x9e3779b97f4a7c15ull
#define UNSCRAMBLE 0xf1de83e19937733dull

/* Fixed before loading. */
const volatile __u32 requests_len; /* entries of `requests` in use are this times `stride` */
const volatile __u32 stride;       /* blocks per request */
const volatile __u32 step;         /* a slot sends every step-th request, modulo their number: see next() */
const volatile __u32 own_mask;     /* requests of each slot less one, a power of two less one; 0: they are shared */
const volatile __u32 reply_min;    /* payload bytes, 1 or more */
const volatile __u32 reply_max;
const volatile __u32 id_at;        /* the identifier's offset in a request */
const volatile __u32 id_echoed_at; /* ... and in a reply; it ends before reply_min */
const volatile __u32 id_width;     /* 1, 2, 4 or 8 bytes, big endian; 0: there is none */
const volatile __u64 id_mask;      /* its low bits that vary */
const volatile __u64 id_key;       /* random for each run: distinguishes replies to an earlier run */
const volatile __u32 flow_shift;   /* bits of the place */
const volatile __u64 flow_mask;    /* 0: no room for the flow */
const volatile __u32 number_shift;
const volatile __u64 number_mask;
const volatile __u32 inflight;     /* slots per flow */

/* Rules in order; the first that applies decides. A reply to which none applies is valid. */
#define VALID 0
#define REFUSED 1
#define CORRUPT 2
#define UNLESS 256 /* applies if the field differs; else if it equals */

struct rule {
	__u32 at; /* of a word, which ends before reply_min */
	__u32 mask;
	__u32 value;
	__u32 verdict; /* and UNLESS */
};

const volatile struct rule rules[MAX_RULES];
const volatile __u32 rules_len;

/* Elements of BER (X.690) that identifier and rules are within, outermost first. */
struct element {
	__u32 at; /* of its tag, if the lengths of those before it have one byte */
	__u32 tag;
};

const volatile struct element elements[MAX_ELEMENTS];
const volatile __u32 elements_len;

/* Requests, `stride` blocks each. The first word of each holds its length in the low 16 bits, and in the upper 32 its
 * one's complement sum; the payload follows, with zeros where the program writes the identifier. */
struct block {
	__u64 words[BLOCK_WORDS];
};

SHARED_ARRAY(requests, 1, struct block);

/* A reply for user space. */
struct sample {
	__u64 state; /* 0: free; else length, and above 32 bits a verdict: OVERDUE or one of the rules' */
	__u64 request;
	__u8 bytes[SAMPLE_BYTES];
};

#define OVERDUE 2 /* instead of CORRUPT, which is not sampled */

SHARED_ARRAY(samples, 1, struct sample); /* SAMPLES per CPU */

/* By how many bytes lengths of the long form move what is within the elements; 255: the reply has no such elements. */
static __always_inline __u32 moved(void *payload, void *end)
{
	__u32 i, by = 0;

#pragma unroll
	for (i = 0; i < MAX_ELEMENTS; i++) {
		__u8 *at;
		__u32 len;

		if (i >= elements_len)
			break;
		at = payload + by + elements[i].at;
		if ((void *)(at + 2) > end || at[0] != elements[i].tag)
			return 255;
		len = at[1];
		if (len & 0x80) {
			len &= 0x7f;
			OPAQUE(len);
			if (len > MAX_LENGTH)
				return 255;
			by += len;
		}
	}
	return by;
}

static __always_inline __u32 judge(void *payload)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < MAX_RULES; i++) {
		__u32 verdict, word;

		if (i >= rules_len)
			break;
		word = *(__u32 *)(payload + rules[i].at);
		verdict = rules[i].verdict;
		if (((word & rules[i].mask) == rules[i].value) == !(verdict & UNLESS))
			return verdict & ~UNLESS;
	}
	return VALID;
}

static __always_inline __u64 load_id(void *at)
{
	if (id_width == 0)
		return 0;
	if (id_width == 1)
		return *(__u8 *)at;
	if (id_width == 2)
		return bpf_ntohs(*(__u16 *)at);
	if (id_width == 4)
		return bpf_ntohl(*(__u32 *)at);
	return bpf_be64_to_cpu(*(__u64 *)at);
}

/* Adds the varying bits of an identifier to a request that has zeros there; returns what they add to its sum. */
static __always_inline __u64 store_id(void *at, __u64 id)
{
	__u64 sum;

	if (id_width == 0)
		return 0;
	if (id_width == 1) {
		sum = id & 0xff;
		*(__u8 *)at |= sum;
	} else if (id_width == 2) {
		sum = bpf_htons(id);
		*(__u16 *)at |= sum;
	} else if (id_width == 4) {
		sum = bpf_htonl(id);
		*(__u32 *)at |= sum;
	} else {
		__u64 word = bpf_cpu_to_be64(id);

		*(__u64 *)at |= word;
		sum = (word & 0xffffffff) + (word >> 32);
	}
	if (id_at & 1) { /* across the sum's 16-bit words: their bytes are swapped (RFC 1071, 2(B)) */
		sum = fold(sum);
		sum = (sum & 0xff) << 8 | sum >> 8;
	}
	return sum;
}

/* Copies a reply for user space if a place is free: the first replies after user space has read the last ones. */
static __always_inline void sample(struct xdp_md *ctx, struct frame *f, __u32 len, __u64 request, __u64 verdict,
				   struct counters *n, __u32 cpu)
{
	__u32 index = cpu * SAMPLES + n->sampled % SAMPLES;
	struct sample *s = bpf_map_lookup_elem(&samples, &index);
	__u32 from = f->ipv6 ? 62 : 42;

	if (!s || s->state)
		return;
	OPAQUE(len);
	if (len == 0 || len > SAMPLE_BYTES)
		return;
	if (bpf_xdp_load_bytes(ctx, from, s->bytes, len))
		return;
	s->request = request;
	n->sampled++;
	/* After everything above, on any CPU. */
	__sync_lock_test_and_set(&s->state, len | verdict << 32);
}

/* Copies the request that begins with block `index`. */
static __always_inline int copy_request(void *to, void *end, struct block *first, __u32 index, __u32 len)
{
	struct copying c = { .to = to, .end = end, .left = len };
	struct block *more;
	int i;

	if (!copy(&c, first->words + 1, BLOCK_WORDS - 1))
		return 0;
	for (i = 1; i < MAX_BLOCKS && c.left; i++) {
		index++;
		more = bpf_map_lookup_elem(&requests, &index);
		if (!more || !copy(&c, more->words, BLOCK_WORDS))
			return 0;
	}
	return !c.left;
}

/* The request after `request`, for transaction `seq` of `slot`. With the number of slots as step, all slots together send
 * each equally often. */
static __always_inline __u32 next(__u32 request, __u32 slot, __u64 seq)
{
	if (own_mask)
		return slot * (own_mask + 1) + (seq & own_mask);
	request += step;
	return request < requests_len ? request : request - requests_len;
}

SEC("xdp")
int prebuilt_loop(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 zero = 0, index, owner, place, len, next_len, verdict, request, by, mine;
	__u64 code, seq, behind, number, sent, now, state, sum;
	struct control *shared;
	struct counters *n;
	struct block *first;
	struct frame f;
	struct slot *slot;
	struct flow *flow;
	void *fields;

	if (!parse(data, data_end, &f))
		return XDP_PASS;
	if (!from_server(&f))
		return not_from_server(&f);
	if (cpu >= cpus_len)
		return XDP_PASS;
	owner = receiver(&f);
	n = bpf_map_lookup_elem(&counts, &cpu);
	shared = bpf_map_lookup_elem(&control, &zero);
	if (!owner || !n || !shared)
		return XDP_PASS;
	owner--;
	state = shared->state;
	n->received++;

	len = f.payload_len;
	OPAQUE(len);
	if (len < reply_min || len > reply_max || f.payload + len > data_end)
		goto corrupt;
	by = moved(f.payload, data_end);
	OPAQUE(by);
	if (by > MAX_ELEMENTS * MAX_LENGTH || len < reply_min + by)
		goto corrupt;
	fields = f.payload + by;
	if (fields + reply_min > data_end)
		goto corrupt;
	verdict = judge(fields);
	if (verdict == CORRUPT)
		goto corrupt;

	code = ((load_id(fields + id_echoed_at) ^ id_key) * UNSCRAMBLE) & id_mask;
	place = code & ((1ull << flow_shift) - 1);
	if (place >= inflight)
		goto corrupt;
	index = flow_mask ? (code >> flow_shift) & flow_mask : owner;
	index = index * inflight + place;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot || code >> number_shift > number_mask)
		goto corrupt;
	mine = index;
	number = slot->seq;
	behind = (number - (code >> number_shift)) & number_mask;
	if (behind > number)
		goto corrupt; /* a number that was never sent */
	index = slot->flow;
	flow = bpf_map_lookup_elem(&flows, &index);
	if (!flow)
		goto corrupt;
	if (f.udp->dest != slot->port || !same_address(&f, destination(&f), flow->local)) {
		if (behind >= RECENT)
			goto corrupt;
		n->wrong_flow++;
		return XDP_DROP;
	}
	sent = slot->sent;
	if (!behind && !sent)
		goto corrupt; /* not sent yet */
	seq = number - behind;
	now = clock(n, shared);
	if (behind || !take(slot, seq, state)) {
		if (given_up(slot, seq)) {
			if (verdict == REFUSED)
				n->refused_late++;
			else
				late(flow, now, n);
		} else if (behind >= RECENT) {
			goto corrupt;
		} else {
			n->duplicate++;
		}
		return XDP_DROP;
	}

	if (now < sent) /* sent by another CPU after this one last read the clock */
		now = read_clock(n);
	if (verdict == REFUSED) {
		n->refused++;
	} else {
		answered(flow, sent, now, n);
		if (now - sent > timeout)
			verdict = OVERDUE;
	}
	request = slot->request;
	sample(ctx, &f, len, request, verdict, n, cpu);
	request = next(request, mine, seq + 1);
	slot->request = request;
	if (!(state & RUNNING))
		goto idle;

	index = request * stride;
	first = bpf_map_lookup_elem(&requests, &index);
	if (!first)
		goto unsent;
	next_len = first->words[0] & 0xffff;
	sum = first->words[0] >> 32;
	turn_round(&f);
	if (next_len != len) {
		if (!resize(ctx, &f, len, next_len))
			goto unsent;
		if (!locate(ctx, &f))
			goto unsent;
		set_length(&f, next_len);
	}
	data_end = (void *)(long)ctx->data_end;
	if (!copy_request(f.payload, data_end, first, index, next_len))
		goto unsent;
	if (!own_mask) {
		code = (code & ((1ull << number_shift) - 1)) | ((seq + 1) & number_mask) << number_shift;
		code = ((code * SCRAMBLE) ^ id_key) & id_mask;
		if (f.payload + id_at + id_width > data_end)
			goto unsent;
		sum += store_id(f.payload + id_at, code);
	}
	slot->sent = now;
	checksum(&f, sum);
	return send_from_home(slot, cpu);

unsent:
	n->unsent++;
idle:
	slot->sent = 0; /* nothing in flight: user space sends the next one */
	n->ended++;
	return XDP_DROP;

corrupt:
	n->corrupt++;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
