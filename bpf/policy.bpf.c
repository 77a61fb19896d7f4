/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Options of UDP sockets, set at the moment when an unmodified program binds or connects one.
 *
 *   socket(2) ──▸ sock_create: mark, priority
 *   bind(2) ────▸ bind4, bind6: all options                                       send, receive: nothing runs
 *   connect(2) ─▸ connect4, connect6: all but SO_REUSEPORT, if never bound
 *
 * The programs are attached at the root of cgroup v2, because a service's own cgroup is removed at each stop. They look
 * up the calling thread's cgroup by name, from the root down:
 *
 *   nodes     [0, "system.slice"] -> 1     [1, "nsd.service"] -> 2
 *   policies  [1, any port] -> priority 6  [2, port 53] -> receive buffer
 *
 * Every policy on the way is used, option by option: a deeper cgroup replaces a shallower one, and a port replaces any
 * port. A cgroup that is not in `nodes` ends the walk.
 */
#include <linux/bpf.h>

#include <asm/socket.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"

#define SOCK_DGRAM 2
#define IPPROTO_UDP 17

/* Sizes and field order: crates/bpf/src/policy/maps.rs. */
#define NAME 256  /* NAME_MAX of linux/limits.h, and the NUL */
#define DEPTH 16  /* levels below the root in which policies are found */

/* Levels climbed from the thread's cgroup. One of a thread below that finds no policy. */
#define CLIMB 32

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	const char *name;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	struct css_set *cgroups;
};

#pragma clang attribute pop

enum option {
	RECEIVE_BUFFER,
	SEND_BUFFER,
	REUSEPORT,
	PRIORITY,
	MARK,
	OPTIONS,
};

struct node {
	__u32 parent; /* 0: the root */
	char name[NAME];
};

struct place {
	__u32 node;
	__u32 port; /* 0: any */
};

struct policy {
	__u32 given; /* bit per option */
	__u32 values[OPTIONS]; /* as setsockopt(2) takes them */
};

struct outcome {
	__u32 set;     /* bit per option */
	__u32 refused; /* bit per option */
	__u32 values[OPTIONS]; /* as getsockopt(2) returns them */
};

/* A policy, and then what came of it: with both at once, the stacks of set_all() and find(), each rounded up to 32
 * bytes, are more than the 512 that Linux 6.1 allows. */
union turn {
	struct {
		__u32 unused;
		struct policy policy;
	};
	struct outcome outcome;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct node);
	__type(value, __u32);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct place);
	__type(value, struct policy);
} policies SEC(".maps");

/* What each socket got, by cookie; the least recently used entry makes room. */
MAP(outcomes, LRU_HASH, 4096, __u64, struct outcome);

static __always_inline void merge(struct policy *into, __u32 node, __u32 port)
{
	struct place place = { .node = node, .port = port };
	const struct policy *found = bpf_map_lookup_elem(&policies, &place);

	if (!found)
		return;
	for (int option = 0; option < OPTIONS; option++)
		if (found->given & 1U << option)
			into->values[option] = found->values[option];
	into->given |= found->given;
}

static __always_inline void merge_both(struct policy *into, __u32 node, __u32 port)
{
	merge(into, node, 0);
	if (port)
		merge(into, node, port);
}

/* What the policies on the way to the calling thread's cgroup say together about a socket of `port`. Not inline: its
 * stack is free again before the options are set. */
static __noinline void find(struct policy *into, __u32 port)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct cgroup *at = BPF_CORE_READ(task, cgroups, dfl_cgrp), *path[DEPTH] = {};
	struct node node = {};
	const __u32 *child;

	merge_both(into, 0, port);
	for (int climbed = 0; climbed < CLIMB && at; climbed++) {
		int level = BPF_CORE_READ(at, level);

		if (level <= 0)
			break;
		if (level <= DEPTH)
			path[(level - 1) & (DEPTH - 1)] = at;
		at = BPF_CORE_READ(at, self.parent, cgroup);
	}
	for (int level = 0; level < DEPTH && path[level]; level++) {
		__builtin_memset(node.name, 0, sizeof(node.name));
		if (bpf_probe_read_kernel_str(node.name, sizeof(node.name), BPF_CORE_READ(path[level], kn, name)) < 0)
			return;
		child = bpf_map_lookup_elem(&nodes, &node);
		if (!child)
			return;
		node.parent = *child;
		merge_both(into, node.parent, port);
	}
}

/* In `outcome` is the value that the policy gives. */
static __always_inline void set(struct bpf_sock_addr *ctx, __u32 given, enum option option, int name,
				struct outcome *outcome)
{
	int value = outcome->values[option];
	__u32 failed;

	if (!(given & 1U << option))
		return;
	failed = !!bpf_setsockopt(ctx, SOL_SOCKET, name, &value, sizeof(value));
	/* The kernel doubles and clamps buffers. */
	if (!bpf_getsockopt(ctx, SOL_SOCKET, name, &value, sizeof(value)))
		outcome->values[option] = value;
	/* Without a branch: compilers turn one into arithmetic on the pointer, which the verifier refuses. */
	outcome->set |= !failed << option;
	outcome->refused |= failed << option;
}

/* `port`: the one that bind(2) asks for; 0 if the kernel is to choose. */
static __always_inline void set_all(struct bpf_sock_addr *ctx, __u32 port)
{
	union turn turn = {};
	__u32 given;
	__u64 cookie;

	if (ctx->type != SOCK_DGRAM || ctx->protocol != IPPROTO_UDP)
		return;
	find(&turn.policy, port);
	given = turn.policy.given;
	/* With SO_REUSEPORT the kernel may choose a port that another socket of the same user has, and that one then
	 * receives half of the replies. */
	if (!port)
		given &= ~(1U << REUSEPORT);
	if (!given)
		return;
	turn.outcome.refused = 0;
	set(ctx, given, RECEIVE_BUFFER, SO_RCVBUF, &turn.outcome);
	set(ctx, given, SEND_BUFFER, SO_SNDBUF, &turn.outcome);
	set(ctx, given, REUSEPORT, SO_REUSEPORT, &turn.outcome);
	set(ctx, given, PRIORITY, SO_PRIORITY, &turn.outcome);
	set(ctx, given, MARK, SO_MARK, &turn.outcome);
	cookie = bpf_get_socket_cookie(ctx);
	bpf_map_update_elem(&outcomes, &cookie, &turn.outcome, BPF_ANY);
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	set_all(ctx, bpf_ntohs(ctx->user_port));
	return 1;
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	set_all(ctx, bpf_ntohs(ctx->user_port));
	return 1;
}

/* A bound socket had its turn, and may have changed the options since. */
static __always_inline int is_bound(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk && sk->src_port;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	if (!is_bound(ctx))
		set_all(ctx, 0);
	return 1;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	if (!is_bound(ctx))
		set_all(ctx, 0);
	return 1;
}

/* Here the kernel has no bpf_setsockopt (net/core/filter.c, sock_filter_func_proto), but these two fields. */
SEC("cgroup/sock_create")
int sock_create(struct bpf_sock *sk)
{
	struct policy policy = {};

	if (sk->type != SOCK_DGRAM || sk->protocol != IPPROTO_UDP)
		return 1;
	find(&policy, 0);
	if (policy.given & 1U << PRIORITY)
		sk->priority = policy.values[PRIORITY];
	if (policy.given & 1U << MARK)
		sk->mark = policy.values[MARK];
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
