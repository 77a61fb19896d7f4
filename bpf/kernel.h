/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The kernel structures that programs on tracepoints read. Only names and types matter: the loader takes field offsets
 * from the running kernel's own type information (CO-RE), and reports an error if the kernel lacks a field.
 *
 * To the program, a tracepoint's arguments are only numbers, so every field is read by a helper that survives a bad
 * address.
 */
#ifndef UDPATH_KERNEL_H
#define UDPATH_KERNEL_H

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_UDP 17

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_rcv_saddr;
	__u16 skc_num;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	int skc_incoming_cpu;
};

typedef struct {
} spinlock_t;

struct sk_buff_head {
	struct sk_buff *prev;
	spinlock_t lock;
};

typedef struct {
	spinlock_t slock;
} socket_lock_t;

struct list_head {
	struct list_head *next;
};

struct wait_queue_head {
	spinlock_t lock;
	struct list_head head;
};

typedef struct wait_queue_head wait_queue_head_t;

struct socket_wq {
	wait_queue_head_t wait;
};

struct socket {
	struct sock *sk;
	struct socket_wq wq;
};

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct sk_buff_head sk_receive_queue;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	__u16 sk_protocol;
	struct socket_wq *sk_wq;
	struct socket *sk_socket;
	struct sock_reuseport *sk_reuseport_cb;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
	int forward_deficit;
	unsigned long udp_flags;
};

struct net_device {
	char name[16];
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	struct sk_buff *prev;
	struct net_device *dev;
	int skb_iif;
	__be16 protocol;
	__u16 network_header;
	unsigned int end; /* of the data behind head, where skb_shared_info begins */
	unsigned char *head;
	unsigned char *data;
};

struct skb_shared_info {
	__u16 gso_segs;
};

struct napi_struct {
	struct net_device *dev;
};

#pragma clang attribute pop

/* A socket by its bound address and port: the address as in packets (IPv4 in the first four bytes). Whole words,
 * because the loaders read words. */
struct bound {
	__u64 address[2];
	__u32 netns; /* inode of its network namespace, as in /proc/PID/ns/net */
	__u16 port;
	__u16 family;
};

static __always_inline void read_bound(struct bound *bound, const struct sock *sk)
{
	bound->address[0] = bound->address[1] = 0;
	bound->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (bound->family == AF_INET6)
		BPF_CORE_READ_INTO((struct in6_addr *)bound->address, sk, __sk_common.skc_v6_rcv_saddr);
	else
		BPF_CORE_READ_INTO((__be32 *)bound->address, sk, __sk_common.skc_rcv_saddr);
	bound->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	bound->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

/* Source and destination ports of a datagram, in host byte order. */
struct ports {
	__u16 source;
	__u16 destination;
};

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IP_OFFSET 0x1fff

/* 1 and the ports if a UDP header follows the network header at `ip`, and this is the first fragment. Extension headers
 * are not followed. */
static __always_inline int read_ports(struct ports *ports, const unsigned char *ip, __be16 protocol)
{
	__u8 header[10];
	__be16 found[2];

	if (bpf_probe_read_kernel(header, sizeof(header), ip))
		return 0;
	if (protocol == bpf_htons(ETH_P_IP)) {
		if (header[0] >> 4 != 4 || header[9] != IPPROTO_UDP)
			return 0;
		if ((header[6] << 8 | header[7]) & IP_OFFSET)
			return 0;
		ip += (header[0] & 15) * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		if (header[0] >> 4 != 6 || header[6] != IPPROTO_UDP)
			return 0;
		ip += 40;
	} else {
		return 0;
	}
	if (bpf_probe_read_kernel(found, sizeof(found), ip))
		return 0;
	ports->source = bpf_ntohs(found[0]);
	ports->destination = bpf_ntohs(found[1]);
	return 1;
}

/* Index of the highest set bit; 0 for 0 and 1. No loop, and this instruction set has no count-leading-zeros. */
static __always_inline __u32 power(__u64 v)
{
	__u32 power = 0;

	if (v >> 32) { power += 32; v >>= 32; }
	if (v >> 16) { power += 16; v >>= 16; }
	if (v >> 8) { power += 8; v >>= 8; }
	if (v >> 4) { power += 4; v >>= 4; }
	if (v >> 2) { power += 2; v >>= 2; }
	return power + (v >> 1);
}

#endif
