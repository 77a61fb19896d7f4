/* A program to be profiled: it spins in functions named after the requested mode. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long turns;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

#define SPIN(seconds)                                                  \
	for (double end = now() + (seconds); now() < end;)             \
		for (int turn = 0; turn < 10000; turn++)               \
			turns++

__attribute__((noinline)) static void in_the_main_thread(double seconds)
{
	SPIN(seconds);
}

__attribute__((noinline)) static void in_the_next_program(double seconds)
{
	SPIN(seconds);
}

__attribute__((noinline)) static void *in_a_late_thread(void *unused)
{
	SPIN(0.05);
	return unused;
}

__attribute__((noinline)) static void *in_the_last_thread(void *unused)
{
	SPIN(60);
	return unused;
}

static void *asleep(void *unused)
{
	sleep(60);
	return unused;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	double seconds = count > 2 ? atof(arguments[2]) : 60;
	pthread_t thread;

	if (!strcmp(what, "spin")) {
		in_the_main_thread(seconds);
	} else if (!strcmp(what, "next")) {
		in_the_next_program(seconds);
	} else if (!strcmp(what, "exec")) {
		/* Executes itself again. */
		in_the_main_thread(seconds);
		execl("/proc/self/exe", arguments[0], "next", "60", (char *)NULL);
		return 1;
	} else if (!strcmp(what, "threads")) {
		/* Each exits before a profiler can find it. */
		for (double end = now() + seconds; now() < end;) {
			if (pthread_create(&thread, NULL, in_a_late_thread, NULL))
				return 1;
			pthread_join(thread, NULL);
		}
	} else if (!strcmp(what, "many")) {
		for (int number = 0; number < 64; number++)
			if (pthread_create(&thread, NULL, asleep, NULL))
				return 1;
		if (pthread_create(&thread, NULL, in_the_last_thread, NULL))
			return 1;
		sleep(60);
	}
	return 0;
}
