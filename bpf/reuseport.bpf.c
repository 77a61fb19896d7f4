/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Which program selects the socket in each reuseport group.
 *
 * No system call reports this. An iterator walks the UDP sockets of the reader's network namespace and writes one
 * record for every socket of a group, read from the iterator's descriptor. The program runs only during the read, and
 * never on the packet path.
 *
 *   sock->sk_reuseport_cb ── none: alone on its port, no record
 *           └─ prog ── none: the kernel's hash of the flow
 *                └─ orig_prog: a classic program, with its instructions;  else aux->id: an eBPF program
 */
#include "kernel.h"

/* Size and field order: crates/bpf/src/reuseport.rs. */
#define STEPS 8

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

struct sock_reuseport {
	struct bpf_prog *prog;
};

#pragma clang attribute pop

enum chooser {
	KERNEL,
	CLASSIC,
	EXTENDED,
};

struct record {
	__u64 cookie;
	__u32 chooser;
	__u32 value;         /* CLASSIC: number of instructions; EXTENDED: the program's ID */
	__u64 steps[STEPS];  /* the first instructions of a classic program, as struct sock_filter */
};

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
