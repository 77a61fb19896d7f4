/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * A reply's frame becomes that of a request of another length.
 *
 *   | headroom | eth ip udp | payload | tailroom |
 *     <-- grows here else                grows here, if the driver left room
 *
 * resize() loses the frame's pointers: locate() finds them again, set_length() writes the lengths into the headers, and
 * copy() the payload, part by part.
 */
#ifndef UDPATH_RESIZE_H
#define UDPATH_RESIZE_H

#include "frame.h"
#include "verifier.h"

#define MAX_HEADROOM 255 /* bytes before a frame, 256 less what the kernel keeps there: a bound the verifier can see */

/* Copies the headers of a frame whose payload follows at the same distance, from `from` to a lower address. Upwards, so
 * that no word is overwritten before it is read, however little the two differ. */
static __always_inline int move_headers(void *to, void *from, void *end, int ipv6)
{
	__u32 words = ipv6 ? 7 : 5;
	__u32 i;

	if (from + (ipv6 ? 62 : 42) > end || to + (ipv6 ? 62 : 42) > end)
		return 0;
#pragma unroll
	for (i = 0; i < 7; i++) {
		if (i < words)
			((__u64 *)to)[i] = ((__u64 *)from)[i];
	}
	if (ipv6) {
		((__u32 *)to)[14] = ((__u32 *)from)[14];
		((__u16 *)to)[30] = ((__u16 *)from)[30];
	} else {
		((__u16 *)to)[20] = ((__u16 *)from)[20];
	}
	return 1;
}

/* Changes the length of the frame's payload; the pointers are lost. A frame grows at its end if the driver left room there.
 * A veth leaves less than 64 bytes behind a reply that comes from a socket (Linux 6.6), but drivers leave about 200 before
 * every frame: then it grows at its beginning, and the headers move there. 0 if neither is enough. */
static __always_inline int resize(struct xdp_md *ctx, struct frame *f, __u32 from, __u32 to)
{
	__u32 least = f->ipv6 ? 0 : ETH_ZLEN - 42; /* of the smallest Ethernet frame, which some drivers do not pad */
	void *start;
	__u32 more;

	if (to < least)
		to = least;
	if (!bpf_xdp_adjust_tail(ctx, (int)to - (int)from))
		return 1;
	if (to <= from)
		return 0;
	more = to - from;
	OPAQUE(more);
	if (more > MAX_HEADROOM || bpf_xdp_adjust_head(ctx, -(int)more))
		return 0;
	start = (void *)(long)ctx->data;
	return move_headers(start, start + more, (void *)(long)ctx->data_end, f->ipv6);
}

/* Finds the frame's parts again. */
static __always_inline int locate(struct xdp_md *ctx, struct frame *f)
{
	void *data = (void *)(long)ctx->data;

	f->eth = data;
	f->ip = f->eth + 1;
	f->udp = f->ip + (f->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	f->payload = f->udp + 1;
	return f->payload <= (void *)(long)ctx->data_end;
}

/* The lengths in the headers, and the IPv4 header's checksum (RFC 1624, equation 3). */
static __always_inline void set_length(struct frame *f, __u32 len)
{
	f->udp->len = bpf_htons(sizeof(struct udphdr) + len);
	if (f->ipv6) {
		((struct ipv6hdr *)f->ip)->payload_len = f->udp->len;
	} else {
		struct iphdr *ip = f->ip;
		__u16 total = bpf_htons(sizeof(struct iphdr) + sizeof(struct udphdr) + len);

		ip->check = ~fold((__u64)(__u16)~ip->check + (__u16)~ip->tot_len + total);
		ip->tot_len = total;
	}
}

/* Where the next part of a payload goes. */
struct copying {
	void *to;
	void *end;
	__u32 left;
};

/* Copies as much as is left, at most `n` words; 0 if the frame ends before. */
static __always_inline int copy(struct copying *c, const __u64 *words, int n)
{
	int i;

#pragma unroll
	for (i = 0; i < n; i++) {
		__u64 word = words[i];

		if (c->left < 8) {
			if (c->left & 4) {
				if (c->to + 4 > c->end)
					return 0;
				*(__u32 *)c->to = word;
				c->to += 4;
				word >>= 32;
			}
			if (c->left & 2) {
				if (c->to + 2 > c->end)
					return 0;
				*(__u16 *)c->to = word;
				c->to += 2;
				word >>= 16;
			}
			if (c->left & 1) {
				if (c->to + 1 > c->end)
					return 0;
				*(__u8 *)c->to = word;
			}
			c->left = 0;
			return 1;
		}
		if (c->to + 8 > c->end)
			return 0;
		*(__u64 *)c->to = word;
		c->to += 8;
		c->left -= 8;
	}
	return 1;
}

#endif
