/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What the UDP sockets of one port received and sent. The kernel counts datagrams by network namespace alone: there, the clients of a
 * server on the same machine count twice.
 *
 *   sock:sock_recv_length(sk, ret, flags) ──> own(sk)? served.received += 1
 *   sock:sock_send_length(sk, ret, flags) ──> own(sk)? served.sent += 1
 *
 * And, of the first thousand, which addresses were asked and which answered: a socket bound to any address answers from the one that
 * the route gives, unless its program says otherwise. And how many datagrams a packet is: one call sends or takes several where the
 * program lets the kernel cut them (UDP_SEGMENT) or join them (UDP_GRO).
 *
 *   net:netif_receive_skb(skb) ──> to the port?   ways[destination].asked += 1,  came += 1, came_segments += gso_segs
 *   net:net_dev_queue(skb)     ──> from the port? ways[source].answered += 1,    went += 1, went_segments += gso_segs
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
	__u64 joined; /* of those received, by sockets that take several datagrams at once */
	__u64 came, came_segments; /* of the packets that were looked at */
	__u64 went, went_segments;
};

PER_CPU(served, struct served);

static __always_inline struct served *counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&served, &zero);
}

static __always_inline struct served *served_by(const struct sock *sk)
{
	/* The port first: of most other sockets it decides. */
	if (BPF_CORE_READ(sk, __sk_common.skc_num) != port || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP ||
	    BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != netns)
		return 0;
	return counts();
}

/* Bit of udp_flags (include/linux/udp.h, since 6.7; before, what such sockets take counts as one). */
#define UDP_FLAGS_GRO_ENABLED 3

static __always_inline int joins(const struct sock *sk)
{
	const struct udp_sock *udp = (const void *)sk;

	return bpf_core_field_exists(udp->udp_flags) && BPF_CORE_READ(udp, udp_flags) >> UDP_FLAGS_GRO_ENABLED & 1;
}

/* A call that only looks, or asks for errors, takes no datagram. */
SEC("raw_tracepoint")
int sock_recv_length(struct bpf_raw_tracepoint_args *ctx)
{
	struct served *own;

	if ((int)ctx->args[1] < 0 || ctx->args[2] & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	own = served_by((void *)ctx->args[0]);
	if (own) {
		own->received++;
		own->joined += joins((void *)ctx->args[0]);
	}
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

/* Requests after which nobody looks any more, unless packets are of several datagrams: those vary, and are counted on. Fewer: a rare
 * address is missed. More: each packet costs a quarter of a microsecond. */
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

/* Of all CPUs: a request and its answer may be on different ones. */
struct looked {
	__u64 requests;
	__u64 several; /* a packet was of several datagrams */
};

MAP(looked_at, ARRAY, 1, __u32, struct looked);

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

/* Datagrams of a packet. */
static __always_inline __u16 segments(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	__u16 found = BPF_CORE_READ(shared, gso_segs);

	return found ? found : 1;
}

static __always_inline int look(const struct sk_buff *skb, const unsigned char *ip, int sent)
{
	__u32 zero = 0;
	struct looked *looked = bpf_map_lookup_elem(&looked_at, &zero);
	struct served *own = counts();
	struct asked *asked;
	struct way way = {};
	__u16 datagrams;

	if (!looked || !own || (looked->requests >= MOST && !looked->several) || !read_way(&way, skb, ip, sent))
		return 0;
	datagrams = segments(skb);
	if (datagrams > 1)
		looked->several = 1;
	if (sent) {
		own->went++;
		own->went_segments += datagrams;
	} else {
		own->came++;
		own->came_segments += datagrams;
	}
	if (looked->requests >= MOST)
		return 0;
	asked = asked_of(&way);
	if (asked)
		__sync_fetch_and_add(sent ? &asked->answered : &asked->asked, 1);
	if (!sent)
		__sync_fetch_and_add(&looked->requests, 1);
	return 0;
}

SEC("raw_tracepoint")
int netif_receive_skb(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sk_buff *skb = (void *)ctx->args[0];

	/* The network header is not set yet: it starts at data. */
	return look(skb, BPF_CORE_READ(skb, data), 0);
}

SEC("raw_tracepoint")
int net_dev_queue(struct bpf_raw_tracepoint_args *ctx)
{
	const struct sk_buff *skb = (void *)ctx->args[0];

	return look(skb, BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header), 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
