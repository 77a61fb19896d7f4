/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What systemd attaches to a unit's control group for IPAccounting= and IPAddressDeny= (src/core/bpf-firewall.c): each packet of its sockets
 * is looked up by its peer's address, and counted. Nothing is denied here.
 */
#include <linux/bpf.h>

#include "frame.h"
#include "maps.h"

/* Groups that have such programs: a unit, its slice, and the one above. */
#define LEVELS 3

struct prefix {
	__u32 length;
	__u32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, struct prefix);
	__type(value, __u32);
} denied SEC(".maps");
MAP(accounted, ARRAY, 2, __u32, __u64); /* packets, bytes */

static __always_inline int account(struct __sk_buff *skb, __u32 offset)
{
	__u32 packets = 0, bytes = 1, level;
	struct prefix prefix = { .length = 32 };
	__u64 *count;

	if (bpf_skb_load_bytes(skb, offset, &prefix.address, 4))
		return 1;
	for (level = 0; level < LEVELS; level++) {
		if (bpf_map_lookup_elem(&denied, &prefix))
			return 0;
		count = bpf_map_lookup_elem(&accounted, &packets);
		if (count)
			__sync_fetch_and_add(count, 1);
		count = bpf_map_lookup_elem(&accounted, &bytes);
		if (count)
			__sync_fetch_and_add(count, skb->len);
	}
	return 1;
}

SEC("cgroup_skb/ingress")
int receives(struct __sk_buff *skb)
{
	return account(skb, 12);
}

SEC("cgroup_skb/egress")
int sends(struct __sk_buff *skb)
{
	return account(skb, 16);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
