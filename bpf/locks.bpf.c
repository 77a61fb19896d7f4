/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * How long threads and CPUs wait for each lock, and from where.
 *
 *   lock:contention_begin ── a spinlock, 1 of N ─> spinning[CPU], innermost last ─┐
 *            │              └ a sleeping lock ───────────> sleeping[thread] ──────┤
 *            └ stack, and the lock's socket: read while waiting                   ▼
 *   lock:contention_end ────────────────────────────────────> waits[lock, stack, kind] += N, N x time
 *
 * The end event fires with the lock held, so it does as little as possible; the expensive work is done at the
 * beginning, where the thread waits anyway. But that work takes longer than most waits for a spinlock: of those that a busy
 * CPU has, one of N is followed, chosen at random, and counts N times.
 */
#include "kernel.h"
#include "sample.h"

/* include/trace/events/lock.h */
#define SPIN 1
#define MUTEX 32

/* A CPU waits for at most four spinlocks at once: in a thread, a softirq, a hard interrupt and an NMI. */
#define NESTED 4

/* The order of `SocketPart` in crates/bpf/src/trace/locks.rs. */
enum part {
	NO_SOCKET,
	RECEIVE_QUEUE,
	READER_QUEUE,
	WAIT_QUEUE,
	OWNER,
};

/* Sizes and word order: crates/bpf/src/trace/locks.rs. Frames of a stack, including two of this program's own. Fewer:
 * the lock's owner cannot be identified; more: each takes time, and the lock may be released in between. */
#define DEEPEST 12
/* Each CPU follows about this many waits for spinlocks in a window. Fewer: the longest waits are missed, and shares are coarse; more:
 * each costs two microseconds. */
#define WANTED 64
#define BUCKETS 24
#define FIRST 7 /* the first bucket ends at 2^FIRST ns */

struct place {
	__u64 lock;
	__u32 stack;
	__u32 flags;
	__u32 part; /* part of a socket */
	__u32 port; /* its port */
};

struct tally {
	__u64 waits;
	__u64 ns;
	__u64 longest;
	__u64 buckets[BUCKETS];
};

struct wait {
	struct place place;
	__u64 since;
	__u64 stands_for; /* waits, itself included */
};

struct spins {
	struct wait of[NESTED];
	__u64 depth;
	struct sampling rate;
};

enum lost {
	NO_STACK,  /* no room in stacks, or another stack in its place: counted without */
	NO_WAIT,   /* waits that could not be tracked */
	NO_TALLY,  /* waits without room in the table */
	LOST,
};

PER_CPU(spinning, struct spins);

MAP(sleeping, HASH, 8192, __u32, struct wait);

/* The loader sets the number of entries, by the number of CPUs. */
MAP(waits, PERCPU_HASH, 1024, struct place, struct tally);

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, DEEPEST * sizeof(__u64));
} stacks SEC(".maps");

/* The sockets whose locks were waited for. */
MAP(sockets, HASH, 1024, __u64, struct bound);

MAP(lost, PERCPU_ARRAY, LOST, __u32, __u64);

static __always_inline void count_lost(__u32 what)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &what);

	if (count)
		(*count)++;
}

/* Is there an open UDP socket at this address? Its struct socket points back at it, which no other memory does. */
static __always_inline int is_udp(const struct sock *sk)
{
	__u16 protocol = 0, family = 0;
	const struct sock *back = 0;
	struct socket *socket = 0;

	if (BPF_CORE_READ_INTO(&protocol, sk, sk_protocol) || protocol != IPPROTO_UDP)
		return 0;
	if (BPF_CORE_READ_INTO(&family, sk, __sk_common.skc_family) || (family != AF_INET && family != AF_INET6))
		return 0;
	if (BPF_CORE_READ_INTO(&socket, sk, sk_socket) || !socket)
		return 0;
	return !BPF_CORE_READ_INTO(&back, socket, sk) && back == sk;
}

/* The UDP socket that contains `lock`. */
static __always_inline const struct sock *socket_of(__u64 lock, __u32 *part)
{
	const struct socket *socket;
	const struct sock *sk;

	sk = (void *)(lock - bpf_core_field_offset(struct sock, sk_receive_queue) -
		      bpf_core_field_offset(struct sk_buff_head, lock));
	*part = RECEIVE_QUEUE;
	if (is_udp(sk))
		return sk;
	sk = (void *)(lock - bpf_core_field_offset(struct udp_sock, reader_queue) -
		      bpf_core_field_offset(struct sk_buff_head, lock));
	*part = READER_QUEUE;
	if (is_udp(sk))
		return sk;
	socket = (void *)(lock - bpf_core_field_offset(struct socket, wq) -
			  bpf_core_field_offset(struct socket_wq, wait) -
			  bpf_core_field_offset(struct wait_queue_head, lock));
	*part = WAIT_QUEUE;
	sk = 0;
	if (!BPF_CORE_READ_INTO(&sk, socket, sk) && is_udp(sk) && BPF_CORE_READ(sk, sk_socket) == socket)
		return sk;
	sk = (void *)(lock - bpf_core_field_offset(struct sock, sk_lock));
	*part = OWNER;
	if (is_udp(sk))
		return sk;
	*part = NO_SOCKET;
	return 0;
}

static __always_inline void name_socket(struct place *place)
{
	const struct sock *sk = socket_of(place->lock, &place->part);
	struct bound *known, bound = {};

	if (!sk)
		return;
	place->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	known = bpf_map_lookup_elem(&sockets, &place->lock);
	if (known && known->port == place->port)
		return;
	read_bound(&bound, sk);
	bpf_map_update_elem(&sockets, &place->lock, &bound, BPF_ANY);
}

static __always_inline void locate(struct wait *wait, void *ctx, __u64 lock, __u32 flags, __u64 stands_for)
{
	/* If two stacks hash to the same map entry, the kernel keeps the first. */
	long stack = bpf_get_stackid(ctx, &stacks, 0);

	__builtin_memset(wait, 0, sizeof(*wait));
	wait->place.lock = lock;
	wait->place.flags = flags;
	wait->place.stack = stack < 0 ? ~0U : stack;
	if (stack < 0)
		count_lost(NO_STACK);
	wait->stands_for = stands_for;
	wait->since = bpf_ktime_get_ns();
}

static __always_inline int is_spinning(__u32 flags)
{
	/* A mutex spins for a while before it sleeps, and has two begin events. */
	return (flags & (SPIN | MUTEX)) == SPIN;
}

/* lock:contention_begin(lock, flags) */
SEC("raw_tracepoint")
int contention_begin(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 lock = ctx->args[0];
	__u32 flags = ctx->args[1], zero = 0, thread, at;
	struct wait wait, *known;
	struct spins *spins;
	__u64 depth, every;

	if (!is_spinning(flags)) {
		locate(&wait, ctx, lock, flags, 1);
		thread = bpf_get_current_pid_tgid();
		known = bpf_map_lookup_elem(&sleeping, &thread);
		if (known && known->place.lock == lock)
			return 0;
		if (bpf_map_update_elem(&sleeping, &thread, &wait, BPF_ANY))
			count_lost(NO_WAIT);
		return 0;
	}
	spins = bpf_map_lookup_elem(&spinning, &zero);
	if (!spins)
		return 0;
	/* At random: locks are often taken in turns, of which every N-th would be the same one. */
	every = interval(&spins->rate, WANTED);
	if (every > 1 && bpf_get_prandom_u32() % every)
		return 0;
	locate(&wait, ctx, lock, flags, every);
	name_socket(&wait.place);
	depth = spins->depth;
	/* Missed end events, because another of these programs was interrupted, leave entries behind. */
	if (depth >= NESTED) {
		count_lost(NO_WAIT);
		depth = 0;
	}
	at = depth;
	asm volatile("" : "+r"(at));
	if (at >= NESTED)
		return 0;
	spins->of[at] = wait;
	spins->depth = depth + 1;
	return 0;
}

static __always_inline void count(const struct wait *wait)
{
	__u64 ns = bpf_ktime_get_ns() - wait->since;
	struct tally *tally = bpf_map_lookup_elem(&waits, &wait->place);
	__u32 bucket;

	if (!tally) {
		struct tally none = {};

		bpf_map_update_elem(&waits, &wait->place, &none, BPF_NOEXIST);
		tally = bpf_map_lookup_elem(&waits, &wait->place);
		if (!tally) {
			count_lost(NO_TALLY);
			return;
		}
	}
	tally->waits += wait->stands_for;
	tally->ns += ns * wait->stands_for;
	if (ns > tally->longest)
		tally->longest = ns;
	bucket = power(ns >> (FIRST - 1));
	if (bucket >= BUCKETS)
		bucket = BUCKETS - 1;
	tally->buckets[bucket] += wait->stands_for;
}

/* lock:contention_end(lock, ret) */
SEC("raw_tracepoint")
int contention_end(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 lock = ctx->args[0];
	struct spins *spins;
	struct wait *known;
	__u32 zero = 0, thread;
	int at;

	spins = bpf_map_lookup_elem(&spinning, &zero);
	if (!spins)
		return 0;
#pragma unroll
	for (at = NESTED - 1; at >= 0; at--) {
		if ((__u64)at >= spins->depth || spins->of[at].place.lock != lock)
			continue;
		spins->depth = at;
		count(&spins->of[at]);
		return 0;
	}
	thread = bpf_get_current_pid_tgid();
	known = bpf_map_lookup_elem(&sleeping, &thread);
	if (!known || known->place.lock != lock)
		return 0;
	count(known);
	bpf_map_delete_elem(&sleeping, &thread);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
