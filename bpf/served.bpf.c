/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What the UDP sockets of one port received and sent. The kernel counts datagrams by network namespace alone: there, the clients of a
 * server on the same machine count twice.
 *
 *   sock:sock_recv_length(sk, ret, flags) ──> own(sk)? served.received += 1
 *   sock:sock_send_length(sk, ret, flags) ──> own(sk)? served.sent += 1
 *
 * And, of the first few hundred, which addresses were asked and which answered: a socket bound to any address answers from the one that
 * the route gives, unless its program says otherwise.
 *
 *   net:netif_receive_skb(skb) ──> to the port?   ways[destination].asked += 1
 *   net:net_dev_queue(skb)     ──> from the port? ways[source].answered += 1
 */
#include "kernel.h"

#define MSG_PEEK 0x2
#define MSG_ERRQUEUE 0x2000

const volatile __u32 netns; /* inode, as in /proc/PID/ns/net */
const volatile __u16 port;

/* Word order: crates/bpf/src/trace/served.rs. */
struct served {
	__u64 received;
	__u64 sent;
};

PER_CPU(served, struct served);

static __always_inline struct served *served_by(const struct sock *sk)
{
	__u32 zero = 0;

	/* The port first: of most other sockets it decides. */
	if (BPF_CORE_READ(sk, __sk_common.skc_num) != port || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP ||
	    BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != netns)
		return 0;
	return bpf_map_lookup_elem(&served, &zero);
}

/* A call that only looks, or asks for errors, takes no datagram. */
SEC("raw_tracepoint")
int sock_recv_length(struct bpf_raw_tracepoint_args *ctx)
{
	struct served *own;

	if ((int)ctx->args[1] < 0 || ctx->args[2] & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	own = served_by((void *)ctx->args[0]);
	if (own)
		own->received++;
	return 0;
}

SEC("raw_tracepoint")
int sock_send_length(struct bpf_raw_tracepoint_args *ctx)
{
	struct served *own;

	if ((int)ctx->args[1] < 0)
		return 0;
	own = served_by((void *)ctx->args[0]);
	if (own)
		own->sent++;
	return 0;
}

/* Requests after which nobody looks any more. Fewer: a rare address is missed. More: each packet costs a quarter of a microsecond. */
#define MOST 1024

struct way {
	__u64 address[2]; /* as in packets; IPv4 in the first four bytes */
	__u64 family;
};

struct asked {
	__u64 asked;
	__u64 answered;
};

MAP(ways, HASH, 64, struct way, struct asked);

/* How many were asked, of all CPUs: a request and its answer may be on different ones. */
MAP(looked, ARRAY, 1, __u32, __u64);

/* The address that is ours of a packet to or from the port. */
static __always_inline int read_way(struct way *way, const struct sk_buff *skb, const unsigned char *ip, int sent)
{
	__be16 protocol = BPF_CORE_READ(skb, protocol);
	struct ports ports;

	if (!read_ports(&ports, ip, protocol) || (sent ? ports.source : ports.destination) != port ||
	    BPF_CORE_READ(skb, dev, nd_net.net, ns.inum) != netns)
		return 0;
	if (protocol == bpf_htons(ETH_P_IP)) {
		way->family = AF_INET;
		return !bpf_probe_read_kernel(way->address, 4, ip + (sent ? 12 : 16));
	}
	way->family = AF_INET6;
	return !bpf_probe_read_kernel(way->address, 16, ip + (sent ? 8 : 24));
}

static __always_inline struct asked *asked_of(const struct way *way)
{
	struct asked *asked = bpf_map_lookup_elem(&ways, way), none = {};

	if (asked)
		return asked;
	bpf_map_update_elem(&ways, way, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&ways, way);
}

static __always_inline __u64 *looked_at(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&looked, &zero);
}

SEC("raw_tracepoint")
int netif_receive_skb(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sk_buff *skb = (void *)ctx->args[0];
	__u64 *looked = looked_at();
	struct asked *asked;
	struct way way = {};

	/* The network header is not set yet: it starts at data. */
	if (!looked || *looked >= MOST || !read_way(&way, skb, BPF_CORE_READ(skb, data), 0))
		return 0;
	__sync_fetch_and_add(looked, 1);
	asked = asked_of(&way);
	if (asked)
		__sync_fetch_and_add(&asked->asked, 1);
	return 0;
}

SEC("raw_tracepoint")
int net_dev_queue(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sk_buff *skb = (void *)ctx->args[0];
	__u64 *looked = looked_at();
	struct asked *asked;
	struct way way = {};

	if (!looked || *looked >= MOST ||
	    !read_way(&way, skb, BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header), 1))
		return 0;
	asked = asked_of(&way);
	if (asked)
		__sync_fetch_and_add(&asked->answered, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
