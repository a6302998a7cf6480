#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static SSL_CTX *tls;
static uint8_t incoming[PACKET_MAX + READ_MAX];

void die(const char *what) {
    fprintf(stderr, "load: %s (%s)\n", what, strerror(errno));
    exit(2);
}

static void check(int is_good, const char *what) {
    if (!is_good) die(what);
}

/* A socket from one of eight loopback addresses, so that ten thousand connections never run short of ports. */
int open_socket(int number) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    check(fd >= 0, "no socket");
    struct timeval limit = {SETUP_S_MAX, 0};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + number % 8)};
    check(bind(fd, (struct sockaddr *)&from, sizeof from) == 0, "no local address");
    return fd;
}

static void start_tls(Link *link) {
    if (!tls) {
        tls = SSL_CTX_new(TLS_client_method());
        check(tls && SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION), "no TLS 1.3");
        check(SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256"), "no AES-128-GCM");
        SSL_CTX_set_read_ahead(tls, 1); /* many small records in one read: the generator must not be the limit */
        SSL_CTX_set_default_read_buffer_len(tls, READ_MAX);
        SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    link->ssl = SSL_new(tls);
    check(link->ssl && SSL_set_fd(link->ssl, link->fd), "no TLS connection");
    check(SSL_connect(link->ssl) == 1, "TLS handshake failed");
}

static void send_all(Link *link, const uint8_t *bytes, size_t len) {
    ssize_t sent = link->ssl ? SSL_write(link->ssl, bytes, (int)len) : send(link->fd, bytes, len, MSG_NOSIGNAL);
    check(sent == (ssize_t)len, "could not send while setting up");
}

/* Waits for an answer of two to five bytes; those of a kind other than wanted (a delivery, say) are a fault. */
static void await(Link *link, int type, size_t len) {
    uint8_t answer[8];
    for (size_t got = 0; got < len;) {
        ssize_t more = link->ssl ? SSL_read(link->ssl, answer + got, (int)(len - got)) : recv(link->fd, answer + got, len - got, 0);
        check(more > 0, type == CONNACK ? "no CONNACK" : "no SUBACK");
        got += (size_t)more;
    }
    check(answer[0] >> 4 == type && answer[len - 1] < 128, type == CONNACK ? "CONNECT refused" : "SUBSCRIBE refused");
}

void open_link(Link *link, int number, int port, int is_tls, const char *client_id, int is_clean) {
    uint8_t packet[PACKET_MAX];
    memset(link, 0, sizeof *link);
    link->number = number;
    link->next_id = 1;
    link->fd = open_socket(number);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(connect(link->fd, (struct sockaddr *)&to, sizeof to) == 0, "the broker does not take the connection");
    if (is_tls) start_tls(link);
    send_all(link, packet, put_connect(packet, client_id, is_clean));
    await(link, CONNACK, 4);
}

void subscribe(Link *link, const char *topic_filter, int qos) {
    uint8_t packet[PACKET_MAX];
    send_all(link, packet, put_subscribe(packet, 1, topic_filter, qos));
    await(link, SUBACK, 5);
}

void watch(Link *link, int epoll) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    fcntl(link->fd, F_SETFL, O_NONBLOCK);
    link->epoll = epoll;
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, link->fd, &event) == 0, "epoll refuses the socket");
}

void close_link(Link *link) {
    uint8_t goodbye[2] = {DISCONNECT << 4, 0};
    if (link->ssl)
        SSL_write(link->ssl, goodbye, 2);
    else if (send(link->fd, goodbye, 2, MSG_NOSIGNAL) < 0)
        errno = 0; /* gone already */
    if (link->ssl) SSL_free(link->ssl);
    close(link->fd);
    free(link->out);
}

uint8_t *room(Link *link, size_t len) {
    if (link->out_at == link->out_len) link->out_at = link->out_len = 0;
    if (link->out_len + len > link->out_cap) {
        link->out_cap = 2 * (link->out_len + len);
        link->out = realloc(link->out, link->out_cap);
        check(link->out != NULL, "no memory");
    }
    return link->out + link->out_len;
}

static ssize_t send_some(Link *link) {
    const uint8_t *from = link->out + link->out_at;
    if (!link->ssl) {
        ssize_t sent = send(link->fd, from, backlog(link), MSG_NOSIGNAL);
        return sent >= 0 ? sent : errno == EAGAIN ? 0 : -1;
    }
    int sent = SSL_write(link->ssl, from, (int)backlog(link));
    if (sent > 0) return sent;
    int why = SSL_get_error(link->ssl, sent);
    return why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? 0 : -1;
}

int flush(Link *link) {
    while (backlog(link)) {
        ssize_t sent = send_some(link);
        if (sent < 0) return -1;
        if (sent == 0) break;
        link->out_at += (size_t)sent;
    }
    int waits = backlog(link) > 0;
    if (waits != link->waits_to_write) {
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = link};
        epoll_ctl(link->epoll, EPOLL_CTL_MOD, link->fd, &event);
        link->waits_to_write = waits;
    }
    return 0;
}

static ssize_t read_some(Link *link, uint8_t *to) {
    if (!link->ssl) {
        ssize_t got = recv(link->fd, to, READ_MAX, 0);
        return got > 0 ? got : got < 0 && errno == EAGAIN ? 0 : -1;
    }
    size_t got = 0; /* what OpenSSL holds back no poll would tell of: read until it has nothing */
    while (got + 16384 <= READ_MAX) {
        int more = SSL_read(link->ssl, to + got, (int)(READ_MAX - got));
        if (more <= 0) return SSL_get_error(link->ssl, more) == SSL_ERROR_WANT_READ ? (ssize_t)got : -1;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

int take(Link *link, OnPacket on_packet, void *context) {
    do {
        memcpy(incoming, link->stash, link->stashed);
        ssize_t got = read_some(link, incoming + link->stashed);
        if (got <= 0) return (int)got;
        size_t len = link->stashed + (size_t)got, at = 0;
        Packet packet;
        int is_whole = 0;
        while (at < len && (is_whole = next_packet(incoming + at, len - at, &packet)) == 1) {
            if (on_packet(link, &packet, context) < 0) return -1;
            at += packet.whole_len;
        }
        if (is_whole < 0) return -1;
        link->stashed = len - at;
        memcpy(link->stash, incoming + at, link->stashed);
    } while (link->ssl && SSL_has_pending(link->ssl));
    return 0;
}

void count_in(Histogram *histogram, int64_t ns) {
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    int shift = value < 128 ? 0 : 57 - __builtin_clzll(value); /* what is left has seven bits */
    histogram->count[shift * 64 + (int)(value >> shift)]++;
    histogram->total++;
    if (ns > histogram->max) histogram->max = ns;
}

double percentile_us(const Histogram *histogram, double share) {
    int64_t left = (int64_t)(share * (double)histogram->total);
    for (int at = 0; at < 64 * 64; at++) {
        left -= histogram->count[at];
        int shift = at < 128 ? 0 : at / 64 - 1;
        if (left < 0) return (double)((uint64_t)(at - shift * 64) << shift) / 1e3;
    }
    return (double)histogram->max / 1e3;
}
