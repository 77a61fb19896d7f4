/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * An XDP program that passes every packet.
 *
 * Attached to one end of a veth pair it enables NAPI there, without which that end rejects frames that its peer sends
 * from XDP (XDP_TX, live frames). drivers/net/veth.c: veth_xdp_xmit() rejects frames while rq->napi is unset.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
