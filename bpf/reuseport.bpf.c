/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The reuseport groups: their sockets in order, and which program selects among them.
 *
 * No system call reports this. An iterator walks the UDP sockets of the reader's network namespace and writes one
 * record for every socket of a group, read from the iterator's descriptor. The program runs only during the read, and
 * never on the packet path.
 *
 *   sock->sk_reuseport_cb ── none: without SO_REUSEPORT, no record
 *           ├─ socks[num_socks]: the order; the number that a program returns is an index into it
 *           └─ prog ── none: the kernel's hash of the flow, or SO_INCOMING_CPU
 *                └─ orig_prog: a classic program, with its instructions;  else aux->id: an eBPF program
 */
#include "kernel.h"

/* Size and field order: crates/bpf/src/reuseport.rs. */
#define STEPS 8

/* How far a group is searched for a socket. Lower: of larger groups no order is known. Higher: the verifier has more to
 * check, and reading a group takes time by the square of its size. A group with a socket per CPU is shorter. */
#define SEARCHED 1024
#define NOT_FOUND 0xffffffff

struct bpf_iter_meta {
	struct seq_file *seq;
};

/* include/net/udp.h, kernel/bpf: the iterator's context; pointers as words. */
struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_fprog_kern {
	__u16 len;
	void *filter;
};

struct bpf_prog_aux {
	__u32 id;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
	struct sock_fprog_kern *orig_prog;
};

struct inode {
	unsigned long i_ino;
};

/* include/net/sock.h: a socket's inode is beside it. */
struct socket_alloc {
	struct inode vfs_inode;
};

struct sock_reuseport {
	__u16 num_socks;
	struct bpf_prog *prog;
	struct sock *socks[];
};

#pragma clang attribute pop

enum chooser {
	KERNEL,
	CLASSIC,
	EXTENDED,
};

struct record {
	__u64 cookie;
	__u64 group;         /* the same for all sockets of a group */
	__u32 sockets;       /* of the group */
	__u32 index;         /* of this one in it, or NOT_FOUND */
	__s32 incoming_cpu;  /* -1: none */
	__u32 chooser;
	__u32 value;         /* CLASSIC: number of instructions; EXTENDED: the program's ID */
	__u32 inode;         /* 0: a socket of the kernel */
	__u64 steps[STEPS];  /* the first instructions of a classic program, as struct sock_filter */
};

static __always_inline __u32 index_of(const struct sock *sk, const struct sock_reuseport *group, __u32 sockets)
{
	const void *array = (const void *)group + bpf_core_field_offset(struct sock_reuseport, socks);

	for (__u32 at = 0; at < SEARCHED; at++) {
		const struct sock *found = 0;

		if (at >= sockets)
			break;
		bpf_probe_read_kernel(&found, sizeof(found), array + at * sizeof(found));
		if (found == sk)
			return at;
	}
	return NOT_FOUND;
}

/* sock_i_ino of net/core/sock.c: struct socket is the first member of struct socket_alloc. */
static __always_inline __u32 inode_of(const struct sock *sk)
{
	const struct socket_alloc *alloc = (const struct socket_alloc *)BPF_CORE_READ(sk, sk_socket);

	return alloc ? BPF_CORE_READ(alloc, vfs_inode.i_ino) : 0;
}

SEC("iter/udp")
int reuseport(struct bpf_iter__udp *ctx)
{
	const struct sock *sk = (const struct sock *)ctx->udp_sk;
	struct record record = {};
	struct sock_reuseport *group;
	struct sock_fprog_kern *classic;
	struct bpf_prog *prog;

	/* End of the iteration. */
	if (!sk)
		return 0;
	group = BPF_CORE_READ(sk, sk_reuseport_cb);
	if (!group)
		return 0;
	record.cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	record.inode = inode_of(sk);
	record.group = (__u64)group;
	record.sockets = BPF_CORE_READ(group, num_socks);
	record.index = index_of(sk, group, record.sockets);
	record.incoming_cpu = BPF_CORE_READ(sk, __sk_common.skc_incoming_cpu);
	prog = BPF_CORE_READ(group, prog);
	if (prog) {
		classic = BPF_CORE_READ(prog, orig_prog);
		if (classic) {
			void *filter = BPF_CORE_READ(classic, filter);
			__u32 length = BPF_CORE_READ(classic, len);

			record.chooser = CLASSIC;
			record.value = length;
			for (int at = 0; at < STEPS; at++)
				if ((__u32)at < length)
					bpf_probe_read_kernel(&record.steps[at], sizeof(record.steps[at]), filter + 8 * at);
		} else {
			record.chooser = EXTENDED;
			record.value = BPF_CORE_READ(prog, aux, id);
		}
	}
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
