/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Several closed loops (closed_loop.h) on one interface, each with a server of its own.
 *
 *   reply --> whose flow has this port? --tail call--> that loop's program
 *
 * The programs are those of a single loop: an interface has one XDP program, so this one chooses among them.
 */
#include "frame.h"

/* The loader sets the number of entries: the loops' programs. */
MAP(loops, PROG_ARRAY, 1, __u32, __u32);

/* By UDP port: the loop whose flow has it, plus one; 0 if none has. */
SHARED_ARRAY(owners, 65536, __u64);

SEC("xdp")
int mixed_loop(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct frame f;
	__u32 port;
	__u64 *owner;

	if (!parse(data, data_end, &f))
		return XDP_PASS;
	port = bpf_ntohs(f.udp->dest);
	owner = bpf_map_lookup_elem(&owners, &port);
	if (owner && *owner)
		bpf_tail_call(ctx, &loops, (__u32)*owner - 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
