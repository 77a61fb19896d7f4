/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Declarations of maps, in the form in which loaders find them in the object's type information (BTF). Maps that need
 * other fields are written out.
 */
#ifndef UDPATH_MAPS_H
#define UDPATH_MAPS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* `kind`: a BPF_MAP_TYPE_ without the prefix. */
#define MAP(name, kind, entries, key_type, value_type) \
	struct { \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries); \
		__type(key, key_type); \
		__type(value, value_type); \
	} name SEC(".maps")

/* One value for each CPU. */
#define PER_CPU(name, value_type) MAP(name, PERCPU_ARRAY, 1, __u32, value_type)

/* An array that user space maps into its own memory. */
#define SHARED_ARRAY(name, entries, value_type) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, entries); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")

#endif
