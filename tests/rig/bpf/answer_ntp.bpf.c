/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The cheapest possible NTP server over IPv4, like answer.bpf.c: the driver turns every client's request for one port
 * into a reply that clients accept (RFC 5905), but for the time, which is always the same.
 */
#include "frame.h"

#define CLIENT 0x23 /* version 4, mode 3 */

const volatile __u16 port; /* host byte order */

struct ntp {
	__u8 first; /* leap indicator, version, mode */
	__u8 stratum;
	__s8 poll;
	__s8 precision;
	__u64 root;
	__u32 reference_id;
	/* Of 32 bits: the header is not aligned to 64. */
	__u32 reference[2];
	__u32 origin[2];
	__u32 receive[2];
	__u32 transmit[2];
} __attribute__((packed));

SEC("xdp")
int answer_ntp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct frame f;
	struct ntp *ntp;

	if (!parse(data, data_end, &f) || f.ipv6 || f.udp->dest != bpf_htons(port))
		return XDP_PASS;
	ntp = f.payload;
	if ((void *)(ntp + 1) > data_end || ntp->first != CLIENT)
		return XDP_PASS;

	ntp->first = CLIENT + 1;
	ntp->stratum = 1;
	ntp->origin[0] = ntp->transmit[0];
	ntp->origin[1] = ntp->transmit[1];
	ntp->receive[0] = ntp->transmit[0] = bpf_htonl(0xe0000000);
	ntp->receive[1] = ntp->transmit[1] = 0;
	f.udp->check = 0;
	turn_round(&f);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
