/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Adaptive sampling: each CPU looks at about the same number of events in a window, however many there are.
 */
#ifndef UDPATH_SAMPLE_H
#define UDPATH_SAMPLE_H

/* Length of a window, ticks. Shorter: too few of a burst are looked at; longer: the interval adapts to a new rate late. */
#define WINDOW 64

/* State of one CPU; all zero at first. */
struct sampling {
	__u64 began;     /* start of the window, ticks */
	__u64 in_window; /* events */
	__u64 every;     /* look at 1 of this many */
};

/* Call once for each event; returns N: look at one of N events, and let it count for N. */
static __always_inline __u64 interval(struct sampling *own, __u64 wanted)
{
	__u64 now = bpf_jiffies64();

	if (now - own->began >= WINDOW) {
		own->began = now;
		own->every = own->in_window / wanted + 1;
		own->in_window = 0;
	}
	/* More than in the previous window: look at fewer of the rest. */
	own->in_window++;
	if (own->in_window / wanted >= own->every)
		own->every = own->in_window / wanted + 1;
	return own->every;
}

#endif
