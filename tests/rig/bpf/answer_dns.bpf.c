/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The cheapest possible DNS server over IPv4, like answer.bpf.c: the driver returns every query for one port as a response (RFC 1035,
 * section 4.1.1) with the question and no answer.
 */
#include "frame.h"

#define HEADER 12	 /* bytes */
#define RESPONSE 0x80 /* QR, the first bit of the third byte */

const volatile __u16 port; /* host byte order */

SEC("xdp")
int answer_dns(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct frame f;
	__u8 *header;

	if (!parse(data, data_end, &f) || f.ipv6 || f.udp->dest != bpf_htons(port))
		return XDP_PASS;
	header = f.payload;
	if ((void *)(header + HEADER) > data_end || header[2] & RESPONSE)
		return XDP_PASS;

	header[2] |= RESPONSE;
	f.udp->check = 0;
	turn_round(&f);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
