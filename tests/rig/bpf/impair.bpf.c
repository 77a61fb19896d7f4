/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * An impaired path, transparent to the sender: it drops or delays a fixed share of the UDP frames that leave an
 * interface, and counts exactly what it did.
 *
 * Delay needs a queue that can hold packets, and this program has none: it redirects those frames to another
 * interface, where a delay line (user space) holds them and re-injects them with MARK, which passes unchanged.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include "frame.h"

#define MARK 0x75647031 /* set on frames that were delayed already */
#define MILLION 1000000

const volatile __u32 drop_ppm;      /* share of UDP frames to drop, parts per million */
const volatile __u32 delay_ppm;     /* share to delay */
const volatile __u32 delay_ifindex; /* where the delay line listens */

struct impaired {
	__u64 seen;
	__u64 dropped;
	__u64 delayed;
};

SHARED_ARRAY(impaired, 1, struct impaired);

SEC("classifier")
int impair(struct __sk_buff *skb)
{
	struct frame f;
	struct impaired *n;
	__u32 zero = 0, die;

	if (skb->mark == MARK)
		return TC_ACT_OK;
	/* The headers may lie outside the linear part. */
	if (bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + sizeof(struct udphdr)) < 0 &&
	    bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr)) < 0)
		return TC_ACT_OK;
	if (!parse((void *)(long)skb->data, (void *)(long)skb->data_end, &f))
		return TC_ACT_OK;
	n = bpf_map_lookup_elem(&impaired, &zero);
	if (!n)
		return TC_ACT_OK;

	__sync_fetch_and_add(&n->seen, 1);
	die = bpf_get_prandom_u32() % MILLION;
	if (die < drop_ppm) {
		__sync_fetch_and_add(&n->dropped, 1);
		return TC_ACT_SHOT;
	}
	if (die < drop_ppm + delay_ppm) {
		__sync_fetch_and_add(&n->delayed, 1);
		return bpf_redirect(delay_ifindex, 0);
	}
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
