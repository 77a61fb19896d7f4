/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Finding the UDP payload of a frame, and reversing a frame's direction: common to all programs here.
 *
 *   eth | ipv4 (20 bytes, no options, no fragment) or ipv6 (no extension headers) | udp | payload
 *
 * Anything else is not for a fast path: parse() rejects it and the program passes the frame on untouched.
 */
#ifndef UDPATH_FRAME_H
#define UDPATH_FRAME_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"

#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff

struct frame {
	struct ethhdr *eth;
	int ipv6; /* a flag and one pointer: the verifier tracks a constant, not which of two pointers is set */
	void *ip;
	struct udphdr *udp;
	void *payload;
	__u32 payload_len; /* from the UDP header; valid only as far as the caller has checked against data_end */
};

/* 1 if the frame is plain UDP and *f is filled, 0 if it must be left alone. */
static __always_inline int parse(void *data, void *data_end, struct frame *f)
{
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > data_end)
		return 0;
	f->eth = eth;

	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > data_end)
			return 0;
		if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
			return 0;
		if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_OFFSET_MASK))
			return 0;
		f->ipv6 = 0;
		f->ip = ip;
		f->udp = (void *)(ip + 1);
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > data_end)
			return 0;
		if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		f->ipv6 = 1;
		f->ip = ip;
		f->udp = (void *)(ip + 1);
	} else {
		return 0;
	}

	if ((void *)(f->udp + 1) > data_end)
		return 0;
	f->payload = f->udp + 1;
	f->payload_len = bpf_ntohs(f->udp->len) - sizeof(struct udphdr);
	return 1;
}

/* Turns the frame into a reply to its sender: link, network and transport addresses swapped. The swap does not change
 * the IPv4 header's checksum; TTL and hop limit stay as received. Whole unaligned words at a time, since this is most
 * of the work of a program that only replies; little-endian machines only, like the rest of udpath. */
static __always_inline void turn_round(struct frame *f)
{
	__u64 *mac = (__u64 *)f->eth;           /* d0 .. d5 s0 s1 */
	__u32 *mac_end = (__u32 *)f->eth + 2;   /* s2 .. s5 */
	__u32 *ports = (__u32 *)f->udp;
	__u64 low = *mac;
	__u64 high = *mac_end;

	*mac = low >> 48 | high << 16 | low << 48; /* s0 .. s5 d0 d1 */
	*mac_end = low >> 16;                      /* d2 .. d5 */

	if (f->ipv6) {
		__u64 *addr = (void *)&((struct ipv6hdr *)f->ip)->saddr; /* source 0..1, destination 2..3 */
		__u64 word;
		int i;

#pragma unroll
		for (i = 0; i < 2; i++) {
			word = addr[i];
			addr[i] = addr[i + 2];
			addr[i + 2] = word;
		}
	} else {
		__u64 *addrs = (void *)&((struct iphdr *)f->ip)->saddr;

		*addrs = *addrs >> 32 | *addrs << 32;
	}
	*ports = *ports >> 16 | *ports << 16;
}

/* Folds a 32-bit running sum to the 16-bit one's complement sum. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

#endif
