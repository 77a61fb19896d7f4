/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * An XDP program that lets everything through.
 *
 * Attached to an end of a veth pair it switches NAPI on there, and only then does the end take frames that its peer
 * sends from XDP (XDP_TX, live frames). drivers/net/veth.c: veth_xdp_xmit() refuses frames while rq->napi is unset.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
