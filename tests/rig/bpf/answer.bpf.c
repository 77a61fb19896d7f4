/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The cheapest echo server there can be: every plain UDP frame for one port goes back from the driver.
 *
 * It shows what a generator costs by itself, with next to nothing of a server in the figure. It is not a service: it
 * checks nothing and keeps the request's UDP checksum, which a swap of addresses and ports leaves valid.
 */
#include "frame.h"

const volatile __u16 port; /* host byte order */

SEC("xdp")
int answer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct frame f;

	if (!parse(data, data_end, &f) || f.udp->dest != bpf_htons(port))
		return XDP_PASS;

	turn_round(&f);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
