/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Sends prepared frames without an skb for each: a test run of this program with live frames
 * (BPF_F_TEST_XDP_LIVE_FRAMES) sends one per run, and the kernel passes them to the driver in bulk.
 *
 *   frames[next] --copied--> a page of the test run --> live: XDP_REDIRECT --> ndo_xdp_xmit, 16 at a time
 *                                                                                |
 *   control.sent <-------------------------- tally: how many the driver sent <---+
 *
 * Frames the driver dropped are reported only by the tracepoint, not by the test run or the redirect.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "verifier.h"

/* FRAMES and FRAME_LEN of crates/bpf/src/live.rs. */
#define FRAMES 256
#define FRAME_LEN 4096
#define SHORTEST 14 /* an Ethernet header */

/* The sending interface: the device itself, since an index would be looked up in the network namespace of the process
 * that starts the test run. */
MAP(interface, DEVMAP, 1, __u32, __u32);

/* The word order is that of crates/bpf/src/live.rs. Written only by the process between two test runs, and by the
 * programs below on the CPU where it waits for a run. */
struct control {
	__u64 next;   /* the frame to send in the next run */
	__u64 end;    /* one past the last */
	__u64 stride; /* bytes from one frame to the next */
	__u64 initial; /* bytes that each page has at first: more than the longest frame of the run */
	__u64 open;   /* redirected frames whose result is pending */
	__u64 sent;   /* frames the driver sent */
	__u64 cpu;    /* CPU of the last redirect */
};

SHARED_ARRAY(control, 1, struct control);

struct frames {
	__u8 bytes[FRAMES * FRAME_LEN];
};

SHARED_ARRAY(frames, 1, struct frames);

/* Length of each frame, bytes. */
struct lens {
	__u64 of[FRAMES];
};

SHARED_ARRAY(lens, 1, struct lens);

SEC("xdp")
int live(struct xdp_md *ctx)
{
	__u32 zero = 0, next, stride, len, initial, offset;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	struct frames *f = bpf_map_lookup_elem(&frames, &zero);
	struct lens *l = bpf_map_lookup_elem(&lens, &zero);

	if (!c || !f || !l || c->next >= c->end)
		return XDP_DROP;
	next = c->next;
	if (next >= FRAMES)
		return XDP_DROP;
	stride = c->stride;
	len = l->of[next];
	initial = c->initial;
	/* Otherwise the compiler uses the bounds of the 64-bit words, which the verifier does not know for their halves. */
	OPAQUE(next);
	OPAQUE(len);
	if (next >= FRAMES || stride > FRAME_LEN || len < SHORTEST || len > FRAME_LEN)
		return XDP_DROP;
	offset = next * stride;
	OPAQUE(offset);
	if (offset > (FRAMES - 1) * FRAME_LEN)
		return XDP_DROP;
	c->next++;
	/* Always move the end: the kernel updates a frame's length only if the program has changed its bounds, and a recycled
	 * page may still have the length that its last receiver gave it (XDP_TX on a veth). */
	if (len >= initial || bpf_xdp_adjust_tail(ctx, (int)len - (int)initial))
		return XDP_DROP;
	if (bpf_xdp_store_bytes(ctx, 0, f->bytes + offset, len))
		return XDP_DROP;
	c->cpu = bpf_get_smp_processor_id();
	c->open++;
	return bpf_redirect_map(&interface, 0, XDP_DROP);
}

/*
 * xdp:xdp_devmap_xmit(from, to, sent, drops, err). From a frame's redirect to the end of its bulk the CPU runs no other
 * XDP program: softirqs are off, and the bulk is sent before they are enabled again. So if frames are pending on this
 * CPU, the event is for them.
 */
SEC("raw_tracepoint")
int tally(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0, sent, drops;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	__u64 heard;

	if (!c || !c->open || c->cpu != bpf_get_smp_processor_id())
		return 0;
	sent = ctx->args[2];
	drops = ctx->args[3];
	heard = (__u64)sent + drops;
	c->sent += sent;
	c->open -= heard < c->open ? heard : c->open;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
