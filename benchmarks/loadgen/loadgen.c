/* Pushes prebuilt bytes through a broker and compares every byte that comes out.
 *
 *   loadgen DIR PORT PRODUCERS CONSUMERS WINDOW FRAME MESSAGES WARM_MS TIMED_MS
 *
 * DIR       hello.produce, hello.consume   sent once by each connection
 *           probe, marker                  messages with #hi# and #go# in them, then TAIL bytes
 *           send, expect                   one cycle: what a producer sends, what a consumer gets
 *           tail                           as many bytes as follow #go# in what a consumer gets
 * WINDOW    bytes of `send` that may be on their way to the slowest consumer
 * FRAME     one write for each so many bytes; 0: writes as large as they come
 * MESSAGES  in a cycle
 *
 * It knows no protocol but one word: a line PING between messages is answered with PONG. One
 * thread sends, one receives. The answer is a line of JSON; a lost, changed or needless byte is
 * an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024, CHUNK = 256 << 10, PATIENCE_MS = 15000 };

struct blob { char *at; size_t size; };
struct consumer { int fd; size_t pos; uint64_t got; int ping; int ready; size_t seen; char head[256]; };

static const char PING[] = "PING\r\n", PONG[] = "PONG\r\n", HI[] = "#hi#", GO[] = "#go#";

static struct blob send_, expect, tail;
static int producers[MOST], producer_count, consumer_count;
static struct consumer consumers[MOST];
static size_t frame;
static double window;
static atomic_ullong delivered; /* by the slowest consumer */
static atomic_int stop, is_waiting, is_over;
static uint64_t cycles; /* sent in all; to be read when is_over */
static int bell;

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

static struct blob load(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail("%s: %s", path, strerror(errno));
    struct blob blob = {NULL, ftell(file)};
    rewind(file);
    blob.at = malloc(blob.size + 1);
    if (fread(blob.at, 1, blob.size, file) != blob.size) fail("%s: cut short", path);
    fclose(file);
    return blob;
}

static void send_all(int fd, const char *at, size_t size) {
    while (size) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 1000);
        else if (n < 0) fail("send: %s", strerror(errno));
        else at += n, size -= n;
    }
}

static int dial(int port, struct blob hello) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where))
        fail("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    send_all(fd, hello.at, hello.size);
    return fd;
}

/* ── until everybody hears us ─────────────────────────────────────────────── */

/* Read greetings until `word` was in them; true when it was. */
static int hears(struct consumer *who, const char *word, size_t after) {
    size_t room = sizeof who->head - who->seen;
    if (!room) { /* greetings may be long; only their end matters */
        memmove(who->head, who->head + sizeof who->head / 2, sizeof who->head / 2);
        room = who->seen = sizeof who->head / 2;
    }
    ssize_t n = recv(who->fd, who->head + who->seen, room, MSG_DONTWAIT);
    if (!n) fail("the server closed a consumer's connection before the start");
    if (n > 0) who->seen += n;
    char *found = memmem(who->head, who->seen, word, strlen(word));
    return found && found + strlen(word) + after <= who->head + who->seen;
}

static int all_hear(const char *word, size_t after, int level) {
    int ready = 0;
    for (int i = 0; i < consumer_count; i++) {
        if (consumers[i].ready < level && hears(&consumers[i], word, after))
            consumers[i].ready = level;
        ready += consumers[i].ready >= level;
    }
    return ready == consumer_count;
}

/* A subscription is not confirmed everywhere: repeat a probe until each consumer has one, then
 * mark where the stream begins. Consumers subscribe to the probe's queue last. */
static void meet(struct blob probe, struct blob marker) {
    double until = now_s() + PATIENCE_MS / 1e3;
    while (!all_hear(HI, 0, 1)) {
        if (now_s() > until) fail("no message reached all consumers");
        send_all(producers[0], probe.at, probe.size);
        usleep(5000);
    }
    send_all(producers[0], marker.at, marker.size);
    while (!all_hear(GO, tail.size, 2)) {
        if (now_s() > until) fail("the mark did not reach all consumers");
        usleep(1000);
    }
}

/* ── sending ──────────────────────────────────────────────────────────────── */

static int is_full(double sent) {
    double arrived = (double)atomic_load(&delivered) * send_.size / expect.size;
    return sent - arrived > window;
}

static void wait_for_room(double sent) {
    while (is_full(sent)) {
        uint64_t rung;
        atomic_store(&is_waiting, 1);
        if (is_full(sent) && read(bell, &rung, sizeof rung) < 0) fail("bell: %s", strerror(errno));
        atomic_store(&is_waiting, 0);
    }
}

static void wait_for_sockets(void) {
    struct pollfd ready[MOST];
    for (int i = 0; i < producer_count; i++) ready[i] = (struct pollfd){producers[i], POLLOUT, 0};
    poll(ready, producer_count, PATIENCE_MS);
}

static void *produce(void *unused) {
    static size_t at[MOST];
    static int ended[MOST];
    double sent = 0;
    for (int left = producer_count; left;) {
        int moved = 0;
        for (int i = 0; i < producer_count; i++) {
            if (ended[i]) continue;
            if (!at[i] && atomic_load_explicit(&stop, memory_order_relaxed)) {
                ended[i] = 1, left--, moved = 1;
                continue;
            }
            wait_for_room(sent);
            size_t size = frame ? frame - at[i] % frame : CHUNK;
            if (size > send_.size - at[i]) size = send_.size - at[i];
            ssize_t n = send(producers[i], send_.at + at[i], size, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n < 0) fail("a producer's connection: %s", strerror(errno));
            moved = 1, sent += n, at[i] += n;
            if (at[i] == send_.size) at[i] = 0, cycles++;
        }
        if (!moved) wait_for_sockets();
    }
    atomic_store(&is_over, 1);
    return unused;
}

/* ── receiving ────────────────────────────────────────────────────────────── */

static void compare(struct consumer *who, const char *at, size_t size) {
    while (size) {
        if (who->ping) {
            if (*at != PING[who->ping]) fail("a consumer got other bytes than come next: some were lost, changed or moved");
            at++, size--, who->ping++;
            if (who->ping == sizeof PING - 1) who->ping = 0, send_all(who->fd, PONG, sizeof PONG - 1);
            continue;
        }
        size_t same = expect.size - who->pos < size ? expect.size - who->pos : size;
        if (memcmp(at, expect.at + who->pos, same)) {
            size_t i = 0;
            while (at[i] == expect.at[who->pos + i]) i++;
            if (at[i] != PING[0]) fail("a consumer got other bytes than come next: some were lost, changed or moved");
            same = i, who->ping = 1;
        }
        who->got += same, who->pos = (who->pos + same) % expect.size;
        size_t eaten = same + (who->ping == 1);
        at += eaten, size -= eaten;
    }
}

static void receive(struct consumer *who) {
    static char data[CHUNK];
    ssize_t n = recv(who->fd, data, sizeof data, MSG_DONTWAIT);
    if (!n) fail("the server closed a consumer's connection");
    if (n > 0) compare(who, data, n);
    else if (errno != EAGAIN) fail("a consumer's connection: %s", strerror(errno));
}

/* What a server says to producers is read, so that it never waits for us, and forgotten. */
static void forget(int fd) {
    static char data[CHUNK];
    if (!recv(fd, data, sizeof data, MSG_DONTWAIT)) fail("the server closed a producer's connection");
}

static uint64_t total(void) {
    uint64_t sum = 0, least = UINT64_MAX, one = 1;
    for (int i = 0; i < consumer_count; i++) {
        sum += consumers[i].got;
        if (consumers[i].got < least) least = consumers[i].got;
    }
    atomic_store(&delivered, least);
    if (atomic_load(&is_waiting) && write(bell, &one, sizeof one) < 0) fail("bell: %s", strerror(errno));
    return sum;
}

static int watch(void) {
    int ready = epoll_create1(0);
    for (int i = 0; i < consumer_count; i++) {
        struct epoll_event event = {EPOLLIN, {.u32 = i}};
        epoll_ctl(ready, EPOLL_CTL_ADD, consumers[i].fd, &event);
    }
    for (int i = 0; i < producer_count; i++) {
        struct epoll_event event = {EPOLLIN, {.u32 = MOST + i}};
        epoll_ctl(ready, EPOLL_CTL_ADD, producers[i], &event);
    }
    return ready;
}

static void attend(int ready, int wait_ms) {
    struct epoll_event events[64];
    int count = epoll_wait(ready, events, 64, wait_ms);
    for (int i = 0; i < count; i++) {
        uint32_t who = events[i].data.u32;
        if (who < MOST) receive(&consumers[who]);
        else forget(producers[who - MOST]);
    }
}

struct timing { double began, ended; uint64_t first, last; };

static struct timing consume(double warm_s, double timed_s) {
    struct timing timing = {0};
    int ready = watch();
    double from = now_s() + warm_s, moved_at = now_s();
    for (uint64_t before = 0, got;; before = got) {
        attend(ready, 100);
        got = total();
        double now = now_s();
        if (got != before) moved_at = now;
        if (now - moved_at > PATIENCE_MS / 1e3) fail("nothing moves after %llu bytes", (unsigned long long)got);
        if (!timing.began && now >= from) timing.began = now, timing.first = got;
        if (timing.began && !timing.ended && now >= timing.began + timed_s) {
            timing.ended = now, timing.last = got;
            atomic_store(&stop, 1);
        }
        if (atomic_load(&is_over) && got >= cycles * expect.size * consumer_count) break;
    }
    attend(ready, 20); /* would bring what is too much */
    for (int i = 0; i < consumer_count; i++)
        if (consumers[i].got != cycles * expect.size) fail("a consumer got more than was sent");
    return timing;
}

int main(int count, char **words) {
    if (count != 10) fail("usage: see the head of loadgen.c");
    const char *folder = words[1];
    int port = atoi(words[2]);
    producer_count = atoi(words[3]), consumer_count = atoi(words[4]);
    window = atof(words[5]), frame = atol(words[6]);
    double messages = atof(words[7]), warm_s = atof(words[8]) / 1e3, timed_s = atof(words[9]) / 1e3;
    if (producer_count > MOST || consumer_count > MOST) fail("at most %d of each", MOST);
    send_ = load(folder, "send"), expect = load(folder, "expect"), tail = load(folder, "tail");
    struct blob hello = load(folder, "hello.consume");
    for (int i = 0; i < consumer_count; i++) consumers[i].fd = dial(port, hello);
    hello = load(folder, "hello.produce");
    for (int i = 0; i < producer_count; i++) producers[i] = dial(port, hello);
    meet(load(folder, "probe"), load(folder, "marker"));
    bell = eventfd(0, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, produce, NULL)) fail("no thread");
    struct timing timing = consume(warm_s, timed_s);
    pthread_join(thread, NULL);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double timed = timing.ended - timing.began, bytes = timing.last - timing.first;
    printf("{\"rate\": %.1f, \"mb_per_s\": %.1f, \"messages\": %.0f, \"seconds\": %.4f, \"cpu_s\": %.3f}\n",
           bytes / expect.size * messages / timed, bytes / timed / 1e6, messages * cycles, timed,
           used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    return 0;
}
