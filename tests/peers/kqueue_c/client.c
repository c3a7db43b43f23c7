/* A KqueueMsgQ client in C, written from the description alone: sockets and nothing else.
 *
 *   client PORT produce NAME COUNT SIZE [--ok] [--bytes | --together]
 *   client PORT consume NAME COUNT      [--ok] [--bytes]
 *
 * A producer sends COUNT messages of SIZE bytes; byte k of message n is (7n + k) mod 251. A
 * consumer prints "ready" once it has asked, for all queues if NAME is empty, and then a line for
 * each message: its queue in hexadecimal, its length, its CRC-32. A producer prints such lines too.
 *
 *   --ok        the server answers OK to everything; each answer is waited for, or skipped
 *   --bytes     each byte is sent by itself
 *   --together  all messages are sent by one call
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum pace { WHOLE, BYTES, TOGETHER };

static int server;

static void fail(const char *what) {
  fprintf(stderr, "client: %s: %s\n", what, errno ? strerror(errno) : "the server hung up");
  exit(1);
}

static void connect_to(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int yes = 1;

  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server = socket(AF_INET, SOCK_STREAM, 0);
  if (server < 0 || connect(server, (struct sockaddr *)&at, sizeof at) < 0)
    fail("connect");
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void send_all(const unsigned char *data, size_t size, enum pace pace) {
  while (size > 0) {
    ssize_t sent = send(server, data, pace == BYTES ? 1 : size, 0);
    if (sent < 0)
      fail("send");
    data += sent;
    size -= (size_t)sent;
  }
}

static void read_all(unsigned char *into, size_t size) {
  while (size > 0) {
    ssize_t got = recv(server, into, size, 0);
    if (got <= 0) {
      errno = got ? errno : 0;
      fail("recv");
    }
    into += got;
    size -= (size_t)got;
  }
}

static uint32_t read_length(void) {
  uint32_t length;

  read_all((unsigned char *)&length, sizeof length);
  return ntohl(length);
}

static unsigned char *read_field(uint32_t *length) {
  *length = read_length();
  unsigned char *field = malloc(*length ? *length : 1);
  if (!field)
    fail("malloc");
  read_all(field, *length);
  return field;
}

static void read_ok(void) {
  unsigned char answer[2];

  read_all(answer, sizeof answer);
  if (memcmp(answer, "OK", 2) != 0) {
    fprintf(stderr, "client: no OK but %02x%02x\n", answer[0], answer[1]);
    exit(1);
  }
}

static uint32_t crc32_of(const unsigned char *data, size_t size) {
  uint32_t crc = 0xffffffffu;

  while (size--) {
    crc ^= *data++;
    for (int bit = 0; bit < 8; bit++)
      crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

static void print_message(const unsigned char *name, uint32_t name_len, const unsigned char *body,
                          uint32_t size) {
  for (uint32_t i = 0; i < name_len; i++)
    printf("%02x", name[i]);
  printf(" %u %08x\n", size, crc32_of(body, size));
}

static unsigned char *put_field(unsigned char *at, const void *data, size_t size) {
  uint32_t length = htonl((uint32_t)size);

  memcpy(at, &length, sizeof length);
  memcpy(at + sizeof length, data, size);
  return at + sizeof length + size;
}

static void produce(const char *name, long count, size_t size, int ok, enum pace pace) {
  size_t name_len = strlen(name), frame = 1 + 4 + name_len + 4 + size;
  unsigned char *frames = malloc(frame * (size_t)(pace == TOGETHER && count ? count : 1));
  unsigned char *body = malloc(size ? size : 1), *end = frames;

  if (!frames || !body)
    fail("malloc");
  for (long n = 0; n < count; n++) {
    for (size_t k = 0; k < size; k++)
      body[k] = (unsigned char)((7 * (size_t)n + k) % 251);
    print_message((const unsigned char *)name, (uint32_t)name_len, body, (uint32_t)size);
    *end++ = '*';
    end = put_field(end, name, name_len);
    end = put_field(end, body, size);
    if (pace == TOGETHER)
      continue;
    send_all(frames, frame, pace);
    end = frames;
    if (ok)
      read_ok();
  }
  if (pace == TOGETHER) {
    send_all(frames, (size_t)(end - frames), pace);
    for (long n = 0; ok && n < count; n++)
      read_ok();
  }
  free(frames);
  free(body);
}

static void consume(const char *name, long count, int ok, enum pace pace) {
  size_t name_len = strlen(name);
  unsigned char *frame = malloc(1 + 4 + name_len);

  if (!frame)
    fail("malloc");
  frame[0] = '>';
  put_field(frame + 1, name, name_len);
  send_all(frame, 1 + 4 + name_len, pace);
  free(frame);
  if (ok)
    read_ok();
  puts("ready");
  fflush(stdout);
  for (long n = 0; n < count; n++) {
    unsigned char kind;
    uint32_t length, size;

    read_all(&kind, 1);
    if (kind != '*') {
      fprintf(stderr, "client: no message but %02x\n", kind);
      exit(1);
    }
    unsigned char *queue = read_field(&length), *body = read_field(&size);
    print_message(queue, length, body, size);
    free(queue);
    free(body);
  }
}

int main(int argc, char **argv) {
  int ok = 0, is_producer = argc > 2 && strcmp(argv[2], "produce") == 0;
  int flags = is_producer ? 6 : 5;
  enum pace pace = WHOLE;

  if (argc < flags) {
    fputs("client PORT produce NAME COUNT SIZE | consume NAME COUNT\n", stderr);
    return 2;
  }
  for (int i = flags; i < argc; i++) {
    ok |= strcmp(argv[i], "--ok") == 0;
    if (strcmp(argv[i], "--bytes") == 0)
      pace = BYTES;
    if (strcmp(argv[i], "--together") == 0)
      pace = TOGETHER;
  }
  signal(SIGPIPE, SIG_IGN);
  connect_to(atoi(argv[1]));
  send_all((const unsigned char *)argv[2], 7, pace);
  if (ok)
    read_ok();
  if (is_producer)
    produce(argv[3], atol(argv[4]), (size_t)atol(argv[5]), ok, pace);
  else
    consume(argv[3], atol(argv[4]), ok, pace);
  /* A server that has not read everything must not see this end as a broken connection. */
  shutdown(server, SHUT_WR);
  unsigned char rest;
  while (recv(server, &rest, 1, 0) > 0)
    continue;
  close(server);
  return 0;
}
