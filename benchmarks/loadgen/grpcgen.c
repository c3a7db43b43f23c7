/* Makes unary gRPC calls from prebuilt bytes and counts the replies.
 *
 *   grpcgen FILE PORT CONNECTIONS FLIGHTS WARM COUNT
 *
 * FILE     requests, made in turn: two lengths (4 bytes each, the highest first), then a header
 *          block as HPACK has it, with no field that changes its table, and a gRPC message
 * FLIGHTS  calls under way at any time, on all connections together
 * WARM     calls before the clock starts, COUNT those after it
 *
 * It understands as much of HTTP/2 as it takes to wait for windows and to tell a reply from a
 * refusal: headers, a message and trailers, in this order. One thread. The answer is a line of
 * JSON; a call that was refused is an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW };
enum { MOST = 64, CHUNK = 16384, INBOX = 1 << 20, PATIENCE_MS = 20000, GRANT = 1 << 24 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

struct request { char *headers, *data; uint32_t headers_size, data_size; };
struct stream { struct request *what; double began; int64_t window; uint32_t sent, got; };
struct link {
    int fd, under_way;
    uint32_t calls, first_window;
    int64_t window;
    struct stream *streams; /* by (id - 1) / 2 */
    uint32_t *blocked, blocked_count;
    char *out, *in;
    size_t out_size, out_room, in_size;
    uint32_t taken;
};

static struct request *requests;
static uint32_t request_count;
static struct link links[MOST];
static int link_count, flights;
static uint64_t made, answered, warm, total, bytes;
static double *took, began, ended, cpu_began, cpu_ended;

static void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec
        + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint32_t number(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    char sizes[8];
    if (!file) fail("%s: %s", path, strerror(errno));
    while (fread(sizes, 1, 8, file) == 8) {
        requests = realloc(requests, (request_count + 1) * sizeof *requests);
        struct request *one = &requests[request_count++];
        one->headers_size = number(sizes), one->data_size = number(sizes + 4);
        one->headers = malloc(one->headers_size), one->data = malloc(one->data_size);
        if (fread(one->headers, 1, one->headers_size, file) != one->headers_size
            || fread(one->data, 1, one->data_size, file) != one->data_size)
            fail("%s: cut short", path);
    }
    fclose(file);
    if (!request_count) fail("%s: no requests", path);
}

/* ── what goes out ────────────────────────────────────────────────────────── */

static void put(struct link *link, const void *at, size_t size) {
    if (link->out_size + size > link->out_room) {
        link->out_room = 2 * (link->out_size + size);
        link->out = realloc(link->out, link->out_room);
    }
    memcpy(link->out + link->out_size, at, size);
    link->out_size += size;
}

static void put_frame(struct link *link, int kind, int flags, uint32_t id, const void *at, uint32_t size) {
    unsigned char head[9] = {size >> 16, size >> 8, size, kind, flags, id >> 24, id >> 16, id >> 8, id};
    put(link, head, 9);
    put(link, at, size);
}

static void put_number(struct link *link, int kind, uint32_t id, uint32_t value) {
    value = htonl(value);
    put_frame(link, kind, 0, id, &value, 4);
}

static void flush(struct link *link) {
    size_t done = 0;
    while (done < link->out_size) {
        ssize_t n = send(link->fd, link->out + done, link->out_size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("send: %s", strerror(errno));
        done += n;
    }
    memmove(link->out, link->out + done, link->out_size - done);
    link->out_size -= done;
}

/* Send as much of a request as the windows allow; true when all of it is out. */
static int push(struct link *link, uint32_t place) {
    struct stream *stream = &link->streams[place];
    uint32_t size = stream->what->data_size;
    while (stream->sent < size) {
        int64_t room = stream->window < link->window ? stream->window : link->window;
        uint32_t left = size - stream->sent, n = left < CHUNK ? left : CHUNK;
        if (room <= 0) return 0;
        if (n > room) n = room;
        int flags = n == left ? END_STREAM : 0;
        put_frame(link, DATA, flags, 2 * place + 1, stream->what->data + stream->sent, n);
        stream->sent += n, stream->window -= n, link->window -= n;
    }
    return 1;
}

static void push_blocked(struct link *link) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < link->blocked_count; i++)
        if (!push(link, link->blocked[i])) link->blocked[kept++] = link->blocked[i];
    link->blocked_count = kept;
}

static void call(struct link *link) {
    uint32_t place = link->calls++;
    struct stream *stream = &link->streams[place];
    *stream = (struct stream){&requests[made++ % request_count], now_s(), link->first_window, 0, 0};
    put_frame(link, HEADERS, END_HEADERS, 2 * place + 1, stream->what->headers, stream->what->headers_size);
    link->under_way++;
    if (!push(link, place)) link->blocked[link->blocked_count++] = place;
}

static void dial(struct link *link, int port) {
    static const unsigned char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /* No pushed streams, and a window that no reply fills. */
    static const unsigned char settings[] = {0, 2, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff};
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    link->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&where, sizeof where))
        fail("connect: %s", strerror(errno));
    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    link->window = link->first_window = 65535;
    link->streams = calloc(total + flights, sizeof *link->streams);
    link->blocked = calloc(total + flights, sizeof *link->blocked);
    link->in = malloc(INBOX);
    put(link, hello, sizeof hello - 1);
    put_frame(link, SETTINGS, 0, 0, settings, sizeof settings);
    put_number(link, WINDOW, 0, 0x7fffffff - 65535);
}

/* ── what comes in ────────────────────────────────────────────────────────── */

static void done(struct link *link, struct stream *stream) {
    if (stream->got < 5) fail("a call was refused: its reply has no message");
    link->under_way--;
    double now = now_s();
    if (answered >= warm) took[answered - warm] = now - stream->began;
    answered++;
    if (answered == warm) began = now, cpu_began = cpu_s(), bytes = 0;
    if (answered == total) ended = now, cpu_ended = cpu_s();
}

static void learn(struct link *link, const char *at, uint32_t size) {
    for (uint32_t i = 0; i + 6 <= size; i += 6) {
        if (at[i] || at[i + 1] != 4) continue;
        int64_t more = (int64_t)number(at + i + 2) - link->first_window;
        link->first_window += more;
        for (uint32_t place = 0; place < link->calls; place++) link->streams[place].window += more;
    }
    put_frame(link, SETTINGS, ACK, 0, "", 0);
    push_blocked(link);
}

static void read_frame(struct link *link, int kind, int flags, uint32_t id, const char *at, uint32_t size) {
    uint32_t place = (id - 1) / 2;
    if (id && place >= link->calls) fail("a frame for a call nobody made: %u", id);
    switch (kind) {
    case DATA:
        link->streams[place].got += size, link->taken += size, bytes += size;
        if (link->taken >= GRANT) put_number(link, WINDOW, 0, link->taken), link->taken = 0;
        /* fall through */
    case HEADERS:
        if (flags & END_STREAM) done(link, &link->streams[place]);
        break;
    case SETTINGS:
        if (!(flags & ACK)) learn(link, at, size);
        break;
    case PING:
        if (!(flags & ACK)) put_frame(link, PING, ACK, 0, at, size);
        break;
    case WINDOW:
        *(id ? &link->streams[place].window : &link->window) += number(at);
        push_blocked(link);
        break;
    case RESET:
    case GOAWAY:
        fail("the server gave up on %s", kind == RESET ? "a call" : "a connection");
    }
}

static void receive(struct link *link) {
    ssize_t n = recv(link->fd, link->in + link->in_size, INBOX - link->in_size, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("the server closed a connection");
    link->in_size += n;
    size_t at = 0;
    while (link->in_size - at >= 9) {
        const unsigned char *head = (unsigned char *)link->in + at;
        uint32_t size = head[0] << 16 | head[1] << 8 | head[2];
        if (size > INBOX - 9) fail("a frame of %u bytes", size);
        if (link->in_size - at < 9 + size) break;
        read_frame(link, head[3], head[4], number(link->in + at + 5), link->in + at + 9, size);
        at += 9 + size;
    }
    memmove(link->in, link->in + at, link->in_size - at);
    link->in_size -= at;
}

static void work(void) {
    struct pollfd watched[MOST];
    while (answered < total) {
        for (int i = 0; i < link_count; i++) {
            while (made < total && links[i].under_way < flights / link_count) call(&links[i]);
            flush(&links[i]);
            watched[i] = (struct pollfd){links[i].fd, POLLIN | (links[i].out_size ? POLLOUT : 0), 0};
        }
        if (!poll(watched, link_count, PATIENCE_MS)) fail("no reply for %d s", PATIENCE_MS / 1000);
        for (int i = 0; i < link_count; i++)
            if (watched[i].revents & ~POLLOUT) receive(&links[i]);
    }
}

static int by_size(const void *a, const void *b) {
    double d = *(double *)a - *(double *)b;
    return (d > 0) - (d < 0);
}

int main(int count, char **words) {
    if (count != 7) fail("grpcgen FILE PORT CONNECTIONS FLIGHTS WARM COUNT");
    load(words[1]);
    link_count = atoi(words[3]), flights = atoi(words[4]);
    warm = atoll(words[5]), total = warm + atoll(words[6]);
    if (link_count < 1 || link_count > MOST || flights < link_count || total <= warm)
        fail("at most %d connections, a flight for each, and one call or more", MOST);
    took = calloc(total - warm, sizeof *took);
    for (int i = 0; i < link_count; i++) dial(&links[i], atoi(words[2]));
    began = now_s(), cpu_began = cpu_s();
    work();
    double seconds = ended - began;
    uint64_t timed = total - warm;
    qsort(took, timed, sizeof *took, by_size);
    printf("{\"rate\": %.1f, \"p50\": %.4f, \"p99\": %.4f, \"busy\": %.4f, \"seconds\": %.6f, \"bytes\": %llu}\n",
           timed / seconds, 1e3 * took[timed / 2], 1e3 * took[timed * 99 / 100],
           100 * (cpu_ended - cpu_began) / seconds, seconds, (unsigned long long)bytes);
    return 0;
}
