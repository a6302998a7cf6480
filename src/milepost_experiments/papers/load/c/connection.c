#include "connection.h"

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

/* A socket from one of eight loopback addresses: enough ports for ten thousand connections. */
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

static void start_tls(Connection *connection) {
    if (!tls) {
        tls = SSL_CTX_new(TLS_client_method());
        check(tls && SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION), "no TLS 1.3");
        check(SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256"), "no AES-128-GCM");
        SSL_CTX_set_read_ahead(tls, 1); /* many small records in one read: the generator must not be the bottleneck */
        SSL_CTX_set_default_read_buffer_len(tls, READ_MAX);
        SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    connection->ssl = SSL_new(tls);
    check(connection->ssl && SSL_set_fd(connection->ssl, connection->fd), "no TLS connection");
    check(SSL_connect(connection->ssl) == 1, "TLS handshake failed");
}

static void send_all(Connection *connection, const uint8_t *bytes, size_t len) {
    ssize_t sent = connection->ssl ? SSL_write(connection->ssl, bytes, (int)len) : send(connection->fd, bytes, len, MSG_NOSIGNAL);
    check(sent == (ssize_t)len, "could not send while setting up");
}

/* Waits for an answer of two to five bytes; a packet of another type is a fault. */
static void await(Connection *connection, int type, size_t len) {
    uint8_t answer[8];
    for (size_t got = 0; got < len;) {
        ssize_t more = connection->ssl ? SSL_read(connection->ssl, answer + got, (int)(len - got)) : recv(connection->fd, answer + got, len - got, 0);
        check(more > 0, type == CONNACK ? "no CONNACK" : "no SUBACK");
        got += (size_t)more;
    }
    check(answer[0] >> 4 == type && answer[len - 1] < 128, type == CONNACK ? "CONNECT refused" : "SUBSCRIBE refused");
}

void open_connection(Connection *connection, int number, int port, int is_tls, const char *client_id, int is_clean) {
    uint8_t packet[PACKET_MAX];
    memset(connection, 0, sizeof *connection);
    connection->number = number;
    connection->next_id = 1;
    connection->fd = open_socket(number);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(connect(connection->fd, (struct sockaddr *)&to, sizeof to) == 0, "the broker does not accept the connection");
    if (is_tls) start_tls(connection);
    send_all(connection, packet, put_connect(packet, client_id, is_clean));
    await(connection, CONNACK, 4);
}

void subscribe(Connection *connection, const char *topic_filter, int qos) {
    uint8_t packet[PACKET_MAX];
    send_all(connection, packet, put_subscribe(packet, 1, topic_filter, qos));
    await(connection, SUBACK, 5);
}

void watch(Connection *connection, int epoll) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->epoll = epoll;
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event) == 0, "epoll refuses the socket");
}

void close_connection(Connection *connection) {
    uint8_t goodbye[2] = {DISCONNECT << 4, 0};
    if (connection->ssl)
        SSL_write(connection->ssl, goodbye, 2);
    else if (send(connection->fd, goodbye, 2, MSG_NOSIGNAL) < 0)
        errno = 0; /* already closed */
    if (connection->ssl) SSL_free(connection->ssl);
    close(connection->fd);
    free(connection->out);
}

uint8_t *reserve(Connection *connection, size_t len) {
    if (connection->out_at == connection->out_len) connection->out_at = connection->out_len = 0;
    if (connection->out_len + len > connection->out_cap) {
        connection->out_cap = 2 * (connection->out_len + len);
        connection->out = realloc(connection->out, connection->out_cap);
        check(connection->out != NULL, "no memory");
    }
    return connection->out + connection->out_len;
}

static ssize_t send_some(Connection *connection) {
    const uint8_t *from = connection->out + connection->out_at;
    if (!connection->ssl) {
        ssize_t sent = send(connection->fd, from, backlog(connection), MSG_NOSIGNAL);
        return sent >= 0 ? sent : errno == EAGAIN ? 0 : -1;
    }
    int sent = SSL_write(connection->ssl, from, (int)backlog(connection));
    if (sent > 0) return sent;
    int why = SSL_get_error(connection->ssl, sent);
    return why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? 0 : -1;
}

int flush(Connection *connection) {
    while (backlog(connection)) {
        ssize_t sent = send_some(connection);
        if (sent < 0) return -1;
        if (sent == 0) break;
        connection->out_at += (size_t)sent;
    }
    int waits = backlog(connection) > 0;
    if (waits != connection->waits_to_write) {
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = connection};
        epoll_ctl(connection->epoll, EPOLL_CTL_MOD, connection->fd, &event);
        connection->waits_to_write = waits;
    }
    return 0;
}

static ssize_t read_some(Connection *connection, uint8_t *to) {
    if (!connection->ssl) {
        ssize_t got = recv(connection->fd, to, READ_MAX, 0);
        return got > 0 ? got : got < 0 && errno == EAGAIN ? 0 : -1;
    }
    size_t got = 0; /* poll does not report data buffered by OpenSSL: read until there is none */
    while (got + 16384 <= READ_MAX) {
        int more = SSL_read(connection->ssl, to + got, (int)(READ_MAX - got));
        if (more <= 0) return SSL_get_error(connection->ssl, more) == SSL_ERROR_WANT_READ ? (ssize_t)got : -1;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

int receive_packets(Connection *connection, OnPacket on_packet, void *context) {
    do {
        memcpy(incoming, connection->stash, connection->stashed);
        ssize_t got = read_some(connection, incoming + connection->stashed);
        if (got <= 0) return (int)got;
        size_t len = connection->stashed + (size_t)got, at = 0;
        Packet packet;
        int is_whole = 0;
        while (at < len && (is_whole = next_packet(incoming + at, len - at, &packet)) == 1) {
            if (on_packet(connection, &packet, context) < 0) return -1;
            at += packet.whole_len;
        }
        if (is_whole < 0) return -1;
        connection->stashed = len - at;
        memcpy(connection->stash, incoming + at, connection->stashed);
    } while (connection->ssl && SSL_has_pending(connection->ssl));
    return 0;
}

void add_sample(Histogram *histogram, int64_t ns) {
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    int shift = value < 128 ? 0 : 57 - __builtin_clzll(value); /* seven bits remain */
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
