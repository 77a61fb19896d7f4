/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Sends a frame that another CPU handed over (a map of CPUs, BPF_MAP_TYPE_CPUMAP) out of the interface that it came in by.
 *
 *   CPU 1: reply --> next request --> queue of CPU 0 | CPU 0: this program --> interface
 *
 * On a veth the CPU that sends a frame is the one that processes it at the other end. Closed loops (closed_loop.h) use it to
 * keep each flow's requests on one CPU.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp/cpumap")
int forward(struct xdp_md *ctx)
{
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
