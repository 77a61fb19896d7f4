/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Takes the frames that the user-space datapath can answer, and redirects them to the AF_XDP socket of their receive
 * queue. Everything else goes to the kernel untouched.
 *
 *   frame --> for our MAC, no tag or one of ours, plain IPv4 or IPv6, whole UDP, our port, plain source --> sockets[queue]
 *               |                                                                                            |
 *               +-- anything else: XDP_PASS, counted by reason                        no socket there: XDP_PASS, counted
 *
 * A source that the kernel's own validation may reject is never taken: an address of this host, a broadcast or network
 * address, anything rp_filter rejects. A reply to it would go out on the link, and a neighbor that forwards would send
 * it back: an endless loop, since every reply starts with a fresh TTL. Those frames are left to the kernel.
 *
 * A VLAN 0 tag carries only a priority; it is removed, as the kernel does. In a tag of a served VLAN, the priority is
 * set to that of its replies. Frames with any other tag, or a second one, go to the kernel, which knows the VLANs
 * configured here.
 *
 * It must never take a frame that wire::Packet::parse (crates/stack) rejects: such a frame could neither be answered
 * nor given back. So the checks here are the same or stricter; a test compares the two.
 *
 * There are two variants. `take_hashed` also puts the NIC's RSS hash into the metadata in front of each frame it
 * redirects, where AF_XDP preserves it; it is bound to one device, whose driver implements the kfunc. `take` runs
 * everywhere.
 *
 * A NIC that strips VLAN tags (ethtool: rx-vlan-offload) does so before this program sees the frame, and exposes them
 * only through a kfunc: frames of every VLAN then look untagged here, so that offload must be off.
 */
#include "frame.h"
#include "verifier.h"

#include <linux/in6.h>

#define MAC_MASK 0xffffffffffffULL

/* What is bound on a port: one byte for each. */
#define ANY_V4 1  /* every IPv4 address */
#define ANY_V6 2
#define SOME_V4 4 /* those in the map of addresses */
#define SOME_V6 8

/* The longest frame that fits a socket's buffers; the kernel would drop a longer one, not pass it on. */
const volatile __u32 longest;

/* The order of `Outcome` in crates/bpf/src/take/outcome.rs. */
enum outcome {
	TAKEN,
	OTHER_HOST,
	GROUP,
	VLAN,
	NOT_IP,
	MALFORMED,
	OPTIONS,
	FRAGMENT,
	EXTENSION,
	NOT_UDP,
	OTHER_PORT,
	SPECIAL,
	SOURCE,
	TOO_LONG,
	NO_SOCKET,
	NO_ROOM,
	OUTCOMES = 16,
};

/* One element per CPU, written only on that CPU: two cache lines, so that no line is shared. */
struct counts {
	__u64 n[OUTCOMES];
};

SHARED_ARRAY(counts, 1, struct counts);

/* Eight ports per element, the lowest in the lowest byte. */
SHARED_ARRAY(ports, 65536 / 8, __u64);

/* The interface's own MAC address, as the first eight bytes of a frame hold it; 0: any unicast address. */
SHARED_ARRAY(mac, 1, __u64);

/* An address as in the frame (IPv4 in the first four bytes), the port likewise, and the IP version. */
struct bound {
	__u8 address[16];
	__be16 port;
	__u16 version;
};

MAP(addresses, HASH, 1024, struct bound, __u8);

MAP(sockets, XSKMAP, 1, __u32, __u32);

/*
 * A filter for sources that may have to go to the kernel. One bit of `maybe` for each value of `spot`: if it is clear,
 * no address of `sources` has that value, and one load settles it. `networks`: also look up `prefixes`.
 */
#define SPOTS 4096
struct checks {
	__u64 maybe[SPOTS / 64];
	__u64 networks;
};

SHARED_ARRAY(checks, 1, struct checks);

/* An address as in the frame, IPv4 in the first word, and the IP version. */
struct source {
	__u32 words[4];
	__u32 version;
};

/* Addresses left to the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct source);
	__type(value, __u8);
} sources SEC(".maps");

/* VLAN (0: untagged) and IP version come first, so that one trie is enough: a prefix is 32 bits longer than its
 * address's. */
struct prefix {
	__u32 bits;
	__u16 vlan;
	__u16 version;
	__u32 words[4];
};

/* Networks left to the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u8);
} prefixes SEC(".maps");

/* How to handle frames of a VLAN, eight VLANs per element, the lowest in the lowest byte. */
#define TAG_KEPT 0x80 /* taken; its priority is set to the lower three bits */
#define TAG_REMOVED 0x40 /* taken without its tag: VLAN 0 */

SHARED_ARRAY(vlans, 4096 / 8, __u64);

struct tag {
	__be16 control;
	__be16 proto;
};

static __always_inline int is_tag(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* Is this port (network order) bound at this address? */
static __always_inline int is_bound(__be16 port, const __u32 *address, int ipv6)
{
	__u32 host = bpf_ntohs(port);
	__u32 index = host / 8;
	__u64 *word = bpf_map_lookup_elem(&ports, &index);
	struct bound bound = {};
	__u8 bits;

	if (!word)
		return 0;
	bits = *word >> (host % 8 * 8);
	if (bits & (ipv6 ? ANY_V6 : ANY_V4))
		return 1;
	if (!(bits & (ipv6 ? SOME_V6 : SOME_V4)))
		return 0;
	__builtin_memcpy(bound.address, address, ipv6 ? 16 : 4);
	bound.port = port;
	bound.version = ipv6 ? 6 : 4;
	return bpf_map_lookup_elem(&addresses, &bound) != 0;
}

/* Everything before `at` has been checked; `len` is the length from `udp` on according to IP, and that much data is
 * present. */
static __always_inline enum outcome judge_udp(struct udphdr *udp, void *data_end, __u32 len, const __u32 *destination,
					      int ipv6)
{
	__u32 udp_len;

	if (len < sizeof(*udp) || (void *)(udp + 1) > data_end)
		return MALFORMED;
	udp_len = bpf_ntohs(udp->len);
	if (udp_len < sizeof(*udp) || udp_len > len)
		return MALFORMED;
	if (!is_bound(udp->dest, destination, ipv6))
		return OTHER_PORT;
	/* Port 0 means "no reply requested" (RFC 768). Over IPv6 a checksum is required, except for tunnels, which the kernel
	 * handles (RFC 8200, 8.1). */
	if (!udp->source || !udp->dest || (ipv6 && !udp->check))
		return SPECIAL;
	return TAKEN;
}

/* Unicast, and neither loopback nor "this network": 1.0.0.0 to 223.255.255.255 without 127.0.0.0/8. */
static __always_inline int is_plain_v4(__u32 host)
{
	return host >= 0x01000000 && host < 0xe0000000 && host >> 24 != 127;
}

/* Local senders may leave the UDP checksum to a device, but never the IP header checksum, and the kernel always
 * verifies it. */
static __always_inline int is_intact(const struct iphdr *ip)
{
	const __u32 *words = (const void *)ip;

	return fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

/* An address's bit in `maybe`: its words' sum modulo 2, in host order. */
static __always_inline __u32 spot(__u32 bits)
{
	return (bits ^ bits >> 12 ^ bits >> 24) % SPOTS;
}

/* Must this source be left to the kernel? */
static __always_inline int is_left(const __u32 *address, int ipv6, __u16 vlan)
{
	__u32 zero = 0;
	struct checks *all = bpf_map_lookup_elem(&checks, &zero);
	__u32 bits = address[0];
	__u32 at, word;

	if (!all)
		return 1;
	if (ipv6)
		bits ^= address[1] ^ address[2] ^ address[3];
	at = spot(bpf_ntohl(bits));
	word = at / 64;
	OPAQUE(word);
	if (all->maybe[word % (SPOTS / 64)] >> at % 64 & 1) {
		struct source source = { .version = ipv6 ? 6 : 4 };

		__builtin_memcpy(source.words, address, ipv6 ? 16 : 4);
		if (bpf_map_lookup_elem(&sources, &source))
			return 1;
	}
	if (all->networks) {
		struct prefix prefix = {
			.bits = ipv6 ? 32 + 128 : 32 + 32,
			.vlan = vlan,
			.version = ipv6 ? 6 : 4,
		};

		__builtin_memcpy(prefix.words, address, ipv6 ? 16 : 4);
		return bpf_map_lookup_elem(&prefixes, &prefix) != 0;
	}
	return 0;
}

/* What to do with a tag: TAG_KEPT and a priority, TAG_REMOVED, or 0: leave the frame to the kernel. */
static __always_inline __u32 tag_use(__be16 control)
{
	__u32 vlan = bpf_ntohs(control) & 0xfff;
	__u32 index = vlan / 8;
	__u64 *word = bpf_map_lookup_elem(&vlans, &index);

	return word ? *word >> (vlan % 8 * 8) & 0xff : 0;
}

static __always_inline enum outcome judge_ipv4(struct iphdr *ip, void *data_end, __u16 vlan)
{
	__u32 total, source, destination;
	enum outcome udp;

	if ((void *)(ip + 1) > data_end || ip->version != 4 || ip->ihl < 5)
		return MALFORMED;
	if (ip->ihl != 5)
		return OPTIONS;
	total = bpf_ntohs(ip->tot_len);
	if (total < sizeof(*ip) || total > (__u64)(data_end - (void *)ip))
		return MALFORMED;
	if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_OFFSET_MASK))
		return FRAGMENT;
	if (ip->protocol != IPPROTO_UDP)
		return NOT_UDP;
	udp = judge_udp((void *)(ip + 1), data_end, total - sizeof(*ip), &ip->daddr, 0);
	if (udp != TAKEN)
		return udp;
	source = bpf_ntohl(ip->saddr);
	destination = bpf_ntohl(ip->daddr);
	if (destination >> 28 == 0xe || destination == 0xffffffff)
		return GROUP;
	if (!is_plain_v4(source) || !is_plain_v4(destination) || source == destination)
		return SPECIAL;
	if (!is_intact(ip))
		return MALFORMED;
	return is_left(&ip->saddr, 0, vlan) ? SOURCE : TAKEN;
}

/* Unicast, and outside ::/64, which contains all special addresses: unspecified, loopback, IPv4-mapped. */
static __always_inline int is_plain_v6(const __u32 *words)
{
	return (words[0] | words[1]) && *(const __u8 *)words != 0xff;
}

static __always_inline enum outcome judge_ipv6(struct ipv6hdr *ip, void *data_end, __u16 vlan)
{
	const __u32 *source, *destination;
	enum outcome udp;
	__u32 len;

	if ((void *)(ip + 1) > data_end || ip->version != 6)
		return MALFORMED;
	len = bpf_ntohs(ip->payload_len);
	if (len > (__u64)(data_end - (void *)(ip + 1)))
		return MALFORMED;
	switch (ip->nexthdr) {
	case IPPROTO_UDP:
		break;
	case IPPROTO_FRAGMENT:
		return FRAGMENT;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_ESP:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
	case 139: /* host identity */
	case 140: /* shim6 */
	case 253: /* experiments */
	case 254:
		return EXTENSION;
	default:
		return NOT_UDP;
	}
	source = ip->saddr.in6_u.u6_addr32;
	destination = ip->daddr.in6_u.u6_addr32;
	udp = judge_udp((void *)(ip + 1), data_end, len, destination, 1);
	if (udp != TAKEN)
		return udp;
	if (*(const __u8 *)destination == 0xff)
		return GROUP;
	if (!is_plain_v6(source) || !is_plain_v6(destination))
		return SPECIAL;
	if (source[0] == destination[0] && source[1] == destination[1] && source[2] == destination[2] &&
	    source[3] == destination[3])
		return SPECIAL;
	return is_left(source, 1, vlan) ? SOURCE : TAKEN;
}

/* `use`: what to do with the tag of a frame that is taken; 0 if it has none. */
static __always_inline enum outcome judge(void *data, void *data_end, __u32 *use)
{
	struct ethhdr *eth = data;
	void *at = eth + 1;
	enum outcome ip;
	__be16 proto;
	__u32 zero = 0;
	__u16 vlan = 0;
	__u64 *own;

	*use = 0;
	if (at > data_end)
		return MALFORMED;
	if (eth->h_dest[0] & 1)
		return GROUP;
	own = bpf_map_lookup_elem(&mac, &zero);
	if (own && *own && ((*(__u64 *)eth ^ *own) & MAC_MASK))
		return OTHER_HOST;
	if (eth->h_source[0] & 1)
		return MALFORMED;

	proto = eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		struct tag *tag = at;

		if ((void *)(tag + 1) > data_end)
			return MALFORMED;
		*use = tag_use(tag->control);
		if (!*use)
			return VLAN;
		vlan = bpf_ntohs(tag->control) & 0xfff;
		proto = tag->proto;
		at = tag + 1;
	}
	if (is_tag(proto))
		return VLAN;

	if (proto == bpf_htons(ETH_P_IP))
		ip = judge_ipv4(at, data_end, vlan);
	else if (proto == bpf_htons(ETH_P_IPV6))
		ip = judge_ipv6(at, data_end, vlan);
	else
		return NOT_IP;
	if (ip == TAKEN && data_end - data > longest)
		return TOO_LONG;
	return ip;
}

/* A hash over addresses and ports, not over addresses alone (enum xdp_rss_hash_type). */
#define RSS_L4 8

/* `HASHED` of crates/bpf/src/rx_hash.rs: "hash" in memory. */
#define HASHED 0x68736168

/* The metadata in front of a redirected frame: always written, so that stale data is never read. */
struct note {
	__u32 mark; /* HASHED, or 0: no hash */
	__u32 hash;
};

/* bpf_xdp_metadata_rx_hash, a kfunc. The number is not that of any helper: the loader of take_hashed replaces the call.
 * */
static int (*const rx_hash)(const struct xdp_md *ctx, __u32 *hash, __u32 *type) = (void *)0x68736168;

/* Puts the frame's hash into the metadata in front of it. 0 if there is no room; the frame is then unchanged. */
static __always_inline int put_hash(struct xdp_md *ctx)
{
	/* The peer of a veth may have sent metadata of its own: ours replaces it. */
	int there = (int)((void *)(long)ctx->data - (void *)(long)ctx->data_meta);
	__u32 hash = 0, type = 0;
	int known = !rx_hash(ctx, &hash, &type) && type & RSS_L4;
	struct note *note;

	if (bpf_xdp_adjust_meta(ctx, there - (int)sizeof(*note)))
		return 0;
	note = (void *)(long)ctx->data_meta;
	if ((void *)(note + 1) > (void *)(long)ctx->data)
		return 0;
	note->mark = known ? HASHED : 0;
	note->hash = hash;
	return 1;
}

/* Removes the tag, or writes the priority of replies into it. 0 on failure; the frame is then unchanged. */
static __always_inline int settle_tag(struct xdp_md *ctx, __u32 use)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct tag *tag = (void *)(eth + 1);
	__u8 addresses[2 * ETH_ALEN];

	if ((void *)(tag + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (use & TAG_KEPT) {
		tag->control = bpf_htons((bpf_ntohs(tag->control) & 0xfff) | (use & 7) << 13);
		return 1;
	}
	__builtin_memcpy(addresses, eth, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, sizeof(*tag)))
		return 0;
	eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(eth, addresses, sizeof(addresses));
	return 1;
}

static __always_inline int judge_and_take(struct xdp_md *ctx, int hashed)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 cpu = bpf_get_smp_processor_id();
	struct counts *count = bpf_map_lookup_elem(&counts, &cpu);
	enum outcome outcome;
	int action = XDP_PASS;
	__u32 use;

	if (!count)
		return XDP_PASS;
	outcome = judge(data, data_end, &use);
	if (outcome == TAKEN) {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT) {
			outcome = NO_SOCKET;
		} else if ((hashed && !put_hash(ctx)) || (use && !settle_tag(ctx, use))) {
			action = XDP_PASS;
			outcome = NO_ROOM;
		}
	}
	count->n[outcome % OUTCOMES]++;
	return action;
}

SEC("xdp")
int take(struct xdp_md *ctx)
{
	return judge_and_take(ctx, 0);
}

SEC("xdp")
int take_hashed(struct xdp_md *ctx)
{
	return judge_and_take(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
