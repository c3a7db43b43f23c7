/* Loaded into a process before its C library: writes and syncs of files below one directory fail or
   take long, as the control file named in TAMBO_TEST_DISK says. The file has 4096 bytes:

     0     'w' well, 'f' full (ENOSPC), 'b' broken (EIO), 's' slow, 'u' unsynced: only syncs
           fail (EIO), 'l' last bytes: every other write writes half, the next fails (ENOSPC)
     1     how slow, in milliseconds: eight digits
     16    the directory, without a slash at its end; ends with a zero byte

   It is mapped into memory, so a look at it costs nothing while all is well. What the C library
   writes by itself (fwrite) is not seen: it fails when it is synced. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4096, MS = 1, DIRECTORY = 16 };

static const volatile char *control = NULL;

__attribute__((constructor)) static void map_control(void) {
  const char *path = getenv("TAMBO_TEST_DISK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *mapped = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped != MAP_FAILED) control = mapped;
  close(fd);
}

static int is_below(int fd) {
  char link[32], path[SIZE];
  const char *directory = (const char *)control + DIRECTORY;
  size_t length = strnlen(directory, SIZE - DIRECTORY);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t found = readlink(link, path, sizeof path - 1);
  if (found < (ssize_t)length || !length || memcmp(path, directory, length)) return 0;
  path[found] = 0;
  return path[length] == '/' || path[length] == 0;
}

static void wait_ms(long ms) {
  struct timespec rest = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&rest, &rest) && errno == EINTR) {
  }
}

/* What is wrong with the disk of that file. Waits if it is slow, and then nothing is. */
static char fault_of(int fd) {
  char mode = control ? control[0] : 'w';
  if (mode == 'w') return mode;
  int before = errno;
  if (!is_below(fd)) mode = 'w';
  if (mode == 's') {
    wait_ms(atol((const char *)control + MS));
    mode = 'w';
  }
  errno = before;
  return mode;
}

/* Whether a write of *size bytes fails; errno says how. It may become shorter. */
static int write_fails(int fd, size_t *size) {
  static unsigned cut = 0;
  char mode = fault_of(fd);
  if (mode == 'l' && ++cut % 2 && *size > 1) {
    *size /= 2;
    return 0;
  }
  if (mode != 'f' && mode != 'b' && mode != 'l') return 0;
  errno = mode == 'b' ? EIO : ENOSPC;
  return 1;
}

static int sync_fails(int fd) {
  char mode = fault_of(fd);
  if (mode != 'f' && mode != 'b' && mode != 'u') return 0;
  errno = mode == 'f' ? ENOSPC : EIO;
  return 1;
}

#define NEXT(name, type, ...)                                   \
  static type (*real)(__VA_ARGS__) = NULL;                      \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *bytes, size_t size) {
  NEXT("write", ssize_t, int, const void *, size_t);
  return write_fails(fd, &size) ? -1 : real(fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  NEXT("writev", ssize_t, int, const struct iovec *, int);
  size_t parts_written = (size_t)count;
  return write_fails(fd, &parts_written) ? -1 : real(fd, parts, (int)parts_written);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
  NEXT("pwrite", ssize_t, int, const void *, size_t, off_t);
  return write_fails(fd, &size) ? -1 : real(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
  NEXT("pwrite64", ssize_t, int, const void *, size_t, off64_t);
  return write_fails(fd, &size) ? -1 : real(fd, bytes, size, at);
}

int fsync(int fd) {
  NEXT("fsync", int, int);
  return sync_fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
  NEXT("fdatasync", int, int);
  return sync_fails(fd) ? -1 : real(fd);
}
