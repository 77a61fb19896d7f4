/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * How softirqs run on each CPU, and how CPUs interrupt each other.
 *
 *   irq:softirq_raise ──late──> irq:softirq_entry ──time──> irq:softirq_exit      by vector
 *                                 napi:napi_poll: packets of a poll               by interface
 *   ipi:ipi_send_cpu, ipi_send_cpumask: by callback                               by sender
 *   sched:sched_wakeup
 *
 * All tables are per CPU, each value written by its CPU only.
 */
#include "kernel.h"

/* Sizes and word order: crates/bpf/src/trace/softirqs.rs. */
#define VECTORS 10
#define BUCKETS 24
#define FIRST 7 /* the first bucket ends at 2^FIRST ns */
#define SIZES 8

struct vector {
	__u64 raised;  /* when, ns; 0: not raised since its last entry */
	__u64 entered; /* when, ns; 0: not running */
	__u64 runs;
	__u64 ns;
	__u64 waits; /* number of runs whose raise was seen */
	__u64 late;  /* from raise to entry, ns */
	__u64 latest;
	__u64 buckets[BUCKETS]; /* of those latencies */
};

MAP(vectors, PERCPU_ARRAY, VECTORS, __u32, struct vector);

/* Zeros: the backlog, which belongs to no interface. */
struct interface {
	__u32 index;
	__u32 netns;
};

struct polls {
	__u64 polls;
	__u64 packets;
	__u64 full; /* polls that used up their budget */
	__u64 sizes[SIZES]; /* 0, 1, 2-3, 4-7, ... */
};

MAP(polls, PERCPU_HASH, 256, struct interface, struct polls);

struct name {
	char of[16];
};

MAP(names, HASH, 256, struct interface, struct name);

struct ipis {
	__u64 single; /* to one CPU */
	__u64 masks;  /* to several at once */
};

/* By the function to run there; 0: reschedule only. */
MAP(ipis, PERCPU_HASH, 128, __u64, struct ipis);

PER_CPU(wakeups, __u64);

/* irq:softirq_raise(vector) */
SEC("raw_tracepoint")
int softirq_raise(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 number = ctx->args[0];
	struct vector *vector = bpf_map_lookup_elem(&vectors, &number);

	/* It may be raised several times before it runs; the first counts. */
	if (vector && !vector->raised)
		vector->raised = bpf_ktime_get_ns();
	return 0;
}

/* irq:softirq_entry(vector) */
SEC("raw_tracepoint")
int softirq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 number = ctx->args[0], bucket;
	struct vector *vector = bpf_map_lookup_elem(&vectors, &number);
	__u64 late;

	if (!vector)
		return 0;
	vector->entered = bpf_ktime_get_ns();
	if (!vector->raised)
		return 0;
	late = vector->entered - vector->raised;
	vector->raised = 0;
	vector->waits++;
	vector->late += late;
	if (late > vector->latest)
		vector->latest = late;
	bucket = power(late >> (FIRST - 1));
	if (bucket >= BUCKETS)
		bucket = BUCKETS - 1;
	vector->buckets[bucket]++;
	return 0;
}

/* irq:softirq_exit(vector) */
SEC("raw_tracepoint")
int softirq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 number = ctx->args[0];
	struct vector *vector = bpf_map_lookup_elem(&vectors, &number);

	if (!vector || !vector->entered)
		return 0;
	vector->runs++;
	vector->ns += bpf_ktime_get_ns() - vector->entered;
	vector->entered = 0;
	return 0;
}

/* napi:napi_poll(napi, work, budget) */
SEC("raw_tracepoint")
int napi_poll(struct bpf_raw_tracepoint_args *ctx)
{
	const struct net_device *dev = BPF_CORE_READ((struct napi_struct *)ctx->args[0], dev);
	int work = ctx->args[1], budget = ctx->args[2];
	struct interface interface = {};
	struct polls *found;
	__u32 size;

	if (dev) {
		interface.index = BPF_CORE_READ(dev, ifindex);
		interface.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	}
	found = bpf_map_lookup_elem(&polls, &interface);
	if (!found) {
		struct polls none = {};
		struct name name = {};

		if (dev)
			BPF_CORE_READ_INTO(&name.of, dev, name);
		bpf_map_update_elem(&names, &interface, &name, BPF_ANY);
		bpf_map_update_elem(&polls, &interface, &none, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&polls, &interface);
		if (!found)
			return 0;
	}
	if (work < 0)
		work = 0;
	found->polls++;
	found->packets += work;
	found->full += work >= budget && budget > 0;
	size = work ? power(work) + 1 : 0;
	if (size >= SIZES)
		size = SIZES - 1;
	found->sizes[size]++;
	return 0;
}

static __always_inline struct ipis *ipis_for(__u64 callback)
{
	struct ipis *found = bpf_map_lookup_elem(&ipis, &callback), none = {};

	if (found)
		return found;
	bpf_map_update_elem(&ipis, &callback, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&ipis, &callback);
}

/* ipi:ipi_send_cpu(cpu, callsite, callback) */
SEC("raw_tracepoint")
int ipi_send_cpu(struct bpf_raw_tracepoint_args *ctx)
{
	struct ipis *found = ipis_for(ctx->args[2]);

	if (found)
		found->single++;
	return 0;
}

/* ipi:ipi_send_cpumask(cpumask, callsite, callback) */
SEC("raw_tracepoint")
int ipi_send_cpumask(struct bpf_raw_tracepoint_args *ctx)
{
	struct ipis *found = ipis_for(ctx->args[2]);

	if (found)
		found->masks++;
	return 0;
}

/* sched:sched_wakeup(task) */
SEC("raw_tracepoint")
int sched_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&wakeups, &zero);

	if (count)
		(*count)++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
