/* The least a broker could do: hands what one producer sends to all consumers, unread.
 *
 *   relay CONSUMERS
 *
 * Prints its port, takes so many consumers and then a producer, and ends with the producer. What
 * the generator reaches here is the most it could ever show of a server with one thread.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 1024, CHUNK = 256 << 10, ROLE = 7 };

static int send_all(int fd, const char *at, ssize_t size) {
    while (size) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0) return 0;
        at += n, size -= n;
    }
    return 1;
}

int main(int count, char **words) {
    static char data[CHUNK];
    int consumers = count == 2 ? atoi(words[1]) : 0, fds[MOST], yes = 1;
    if (consumers < 1 || consumers >= MOST) return 2;
    struct sockaddr_in where = {.sin_family = AF_INET};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&where, size) || listen(listener, MOST)) return 1;
    getsockname(listener, (struct sockaddr *)&where, &size);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (int i = 0; i <= consumers; i++) {
        fds[i] = accept(listener, NULL, NULL);
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    if (recv(fds[consumers], data, ROLE, MSG_WAITALL) != ROLE) return 1;
    for (ssize_t n; (n = recv(fds[consumers], data, sizeof data, 0)) > 0;)
        for (int i = 0; i < consumers; i++)
            if (!send_all(fds[i], data, n)) return 1;
    return 0;
}
