/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * How long a server holds each request, by the kernel's clock at the server's end of the link:
 *
 *   link ──▸ arrives (XDP): time by request ──▸ stack, server ──▸ leaves (tc egress): time since then ──▸ held ──▸ link
 *
 * Whatever a generator measures beyond it is the link's, both ways, and its own.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include "frame.h"

/* Bytes at the start of a payload that tell requests of a flow apart. More: requests are cut. Less: some are alike. */
#define HEAD 24
/* Requests that are held at once. */
#define AT_ONCE (1 << 16)
/* Requests of a run; those beyond are counted only. */
#define MOST (1 << 20)

const volatile __u16 port; /* host byte order */

struct request {
	__u8 head[HEAD];
	__u64 client; /* port, network byte order */
};

MAP(arrived, HASH, AT_ONCE, struct request, __u64);
SHARED_ARRAY(held, MOST, __u64); /* ns, in the order of the replies */
SHARED_ARRAY(answered, 1, __u64);

SEC("xdp")
int arrives(struct xdp_md *ctx)
{
	void *data_end = (void *)(long)ctx->data_end;
	__u64 now = bpf_ktime_get_ns();
	struct request request = {};
	struct frame f;

	if (!parse((void *)(long)ctx->data, data_end, &f) || f.udp->dest != bpf_htons(port) ||
	    f.payload + HEAD > data_end)
		return XDP_PASS;
	__builtin_memcpy(request.head, f.payload, HEAD);
	request.client = f.udp->source;
	bpf_map_update_elem(&arrived, &request, &now, BPF_ANY);
	return XDP_PASS;
}

SEC("classifier")
int leaves(struct __sk_buff *skb)
{
	struct request request = {};
	__u64 *since, *count, *place, at;
	__u32 zero = 0, index;
	struct frame f;

	/* The payload may lie outside the linear part. */
	if (bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr) + HEAD) < 0 ||
	    !parse((void *)(long)skb->data, (void *)(long)skb->data_end, &f) || f.udp->source != bpf_htons(port) ||
	    f.payload + HEAD > (void *)(long)skb->data_end)
		return TC_ACT_OK;
	__builtin_memcpy(request.head, f.payload, HEAD);
	request.client = f.udp->dest;
	since = bpf_map_lookup_elem(&arrived, &request);
	count = bpf_map_lookup_elem(&answered, &zero);
	if (!since || !count)
		return TC_ACT_OK;
	at = *since;
	bpf_map_delete_elem(&arrived, &request);
	index = __sync_fetch_and_add(count, 1);
	place = bpf_map_lookup_elem(&held, &index);
	if (place)
		*place = bpf_ktime_get_ns() - at;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
