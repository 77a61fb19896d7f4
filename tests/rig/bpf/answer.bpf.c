/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The cheapest possible UDP echo server: the driver sends every plain UDP frame for one port straight back.
 *
 * It isolates the cost of a generator: almost none of the measured time is the server's. It is not a service: it
 * checks nothing and keeps the request's UDP checksum, which stays valid when addresses and ports are swapped.
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
