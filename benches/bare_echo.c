// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A bare UDP echo server: the system calls of the runtime's shared and reuseport Io and nothing else. The runtime
// is measured against it, so it has no counters, no checks and no graceful end.
//
//   cc -O2 -Wall -Wextra -pthread -o bare_echo bare_echo.c
//   bare_echo shared|reuseport ADDRESS PORT THREADS BATCH pin|no-pin RCVBUF
//
// BATCH 1: recvfrom and sendto. More: recvmmsg (waits for the first datagram only) and sendmmsg.
// RCVBUF: bytes asked for each socket's receive buffer, as root; what does not fit is lost.
// With "pin" thread i runs on the i-th CPU the process may use. Prints "ready" once all sockets are bound.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	BUFFER_LEN = 65536,       // more than any datagram
	STRIDE = BUFFER_LEN + 320, // rooms a power of two apart would share the same few cache sets
	MAX_BATCH = 1024,   // what one recvmmsg takes
	MAX_THREADS = 1024,
};

static int batch;
static int pin;
static int rcvbuf;

struct worker {
	pthread_t thread;
	int socket;
	int cpu;
};

static void die(const char *what)
{
	fprintf(stderr, "bare_echo: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void echo_single(int socket)
{
	char *room = malloc(BUFFER_LEN);

	if (!room)
		die("malloc");
	for (;;) {
		struct sockaddr_storage peer;
		socklen_t peer_len = sizeof(peer);
		ssize_t len = recvfrom(socket, room, BUFFER_LEN, 0, (struct sockaddr *)&peer, &peer_len);

		if (len >= 0)
			sendto(socket, room, len, 0, (struct sockaddr *)&peer, peer_len);
		else if (errno != EINTR)
			die("recvfrom");
	}
}

static void echo_batch(int socket)
{
	struct mmsghdr *messages = calloc(batch, sizeof(*messages));
	struct sockaddr_storage *peers = calloc(batch, sizeof(*peers));
	struct iovec *parts = calloc(batch, sizeof(*parts));
	char *rooms = malloc((size_t)batch * STRIDE);

	if (!messages || !peers || !parts || !rooms)
		die("malloc");
	for (int i = 0; i < batch; i++) {
		parts[i] = (struct iovec){ rooms + (size_t)i * STRIDE, BUFFER_LEN };
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = &peers[i],
			.msg_namelen = sizeof(peers[i]),
			.msg_iov = &parts[i],
			.msg_iovlen = 1,
		};
	}
	for (;;) {
		int count = recvmmsg(socket, messages, batch, MSG_WAITFORONE, NULL);

		if (count < 0) {
			if (errno == EINTR)
				continue;
			die("recvmmsg");
		}
		for (int i = 0; i < count; i++)
			parts[i].iov_len = messages[i].msg_len;
		for (int sent = 0; sent < count;) {
			int now = sendmmsg(socket, messages + sent, count - sent, 0);

			sent += now > 0 ? now : 1; // what the kernel does not take is lost
		}
		for (int i = 0; i < count; i++) {
			parts[i].iov_len = BUFFER_LEN;
			messages[i].msg_hdr.msg_namelen = sizeof(peers[i]);
		}
	}
}

static void *work(void *argument)
{
	const struct worker *worker = argument;

	if (pin) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(worker->cpu, &set);
		errno = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
		if (errno)
			die("pin");
	}
	if (batch == 1)
		echo_single(worker->socket);
	else
		echo_batch(worker->socket);
	return NULL;
}

static int open_socket(const struct sockaddr *address, socklen_t len, int reuseport)
{
	int on = 1;
	int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	if (reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)))
		die("SO_REUSEPORT");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &rcvbuf, sizeof(rcvbuf)))
		die("SO_RCVBUFFORCE");
	if (bind(fd, address, len))
		die("bind");
	return fd;
}

// The index-th CPU this process may use, counting on from the first after the last.
static int nth_cpu(int index)
{
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		die("sched_getaffinity");
	index %= CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && index-- == 0)
			return cpu;
	return 0;
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_THREADS];
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	const struct sockaddr *address = (struct sockaddr *)&v4;
	socklen_t len = sizeof(v4);
	int reuseport, threads;

	if (argc != 8) {
		fprintf(stderr, "usage: bare_echo shared|reuseport ADDRESS PORT THREADS BATCH pin|no-pin RCVBUF\n");
		return 2;
	}
	reuseport = !strcmp(argv[1], "reuseport");
	v4.sin_port = v6.sin6_port = htons(atoi(argv[3]));
	if (inet_pton(AF_INET6, argv[2], &v6.sin6_addr) == 1) {
		address = (struct sockaddr *)&v6;
		len = sizeof(v6);
	} else if (inet_pton(AF_INET, argv[2], &v4.sin_addr) != 1) {
		fprintf(stderr, "bare_echo: %s is not an address\n", argv[2]);
		return 2;
	}
	threads = atoi(argv[4]);
	batch = atoi(argv[5]);
	pin = !strcmp(argv[6], "pin");
	rcvbuf = atoi(argv[7]);
	if (threads < 1 || threads > MAX_THREADS || batch < 1 || batch > MAX_BATCH) {
		fprintf(stderr, "bare_echo: threads and batch are 1 to 1024\n");
		return 2;
	}
	for (int i = 0; i < threads; i++) {
		workers[i].cpu = nth_cpu(i);
		workers[i].socket = i && !reuseport ? workers[0].socket : open_socket(address, len, reuseport);
	}
	for (int i = 0; i < threads; i++) {
		errno = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		if (errno)
			die("pthread_create");
	}
	puts("ready");
	fflush(stdout);
	pthread_join(workers[0].thread, NULL);
	return 0;
}
