/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Another program at a hook of policies: counts the binds that it sees, and changes nothing.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"

SHARED_ARRAY(binds, 1, __u64);

SEC("cgroup/bind4")
int bind_witness(struct bpf_sock_addr *ctx)
{
	__u32 only = 0;
	__u64 *count = bpf_map_lookup_elem(&binds, &only);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
