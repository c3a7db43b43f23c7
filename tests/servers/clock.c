/* Loaded into a server before its C library: its clock is ahead by as many milliseconds as the
   file named in TAMBO_TEST_CLOCK says. The monotonic clocks stay as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int (*gettime)(clockid_t, struct timespec *);

static gettime real_gettime(void) {
  static gettime found;
  if (!found) found = (gettime)dlsym(RTLD_NEXT, "clock_gettime");
  return found;
}

static long long ahead_ms(void) {
  const char *path = getenv("TAMBO_TEST_CLOCK");
  FILE *file = path ? fopen(path, "r") : NULL;
  long long ms = 0;
  if (file) {
    if (fscanf(file, "%lld", &ms) != 1) ms = 0;
    fclose(file);
  }
  return ms;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
  int failed = real_gettime()(clock, ts);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long ms = ahead_ms(), ns = ts->tv_nsec + ms % 1000 * 1000000LL;
    ts->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns / 1000000000LL);
    ts->tv_nsec = (ns + 1000000000LL) % 1000000000LL;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec ts;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &ts);
  if (!failed && tv) {
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
  }
  return failed;
}

time_t time(time_t *out) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
