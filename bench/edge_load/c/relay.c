/* A minimal "broker": forwards QoS 0 messages unchanged to every subscriber; acknowledges QoS 1 messages and drops them.
 *
 *   relay PORT
 *
 * No topics, no sessions, no checks: its rate is a lower bound of what the machine and the generator can do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mqtt.h"

#define PEERS_MAX 20000
#define READ_MAX (64 * 1024)
#define ROUND_MAX (1 << 20) /* maximum gathered per iteration */
#define BACKLOG_MAX (64 << 20)
#define GATHER_US 1000
#define LOAD_MIN 10

typedef struct {
    int fd, is_subscriber;
    uint8_t stash[PACKET_MAX];
    size_t stashed;
    uint8_t *out;
    size_t out_at, out_len, out_cap;
} Peer;

static Peer *peers[PEERS_MAX]; /* by file descriptor */
static Peer *subscribers[PEERS_MAX];
static int subscriber_count, epoll;
static uint8_t gathered[ROUND_MAX];
static size_t gathered_len;
static int forwarded; /* recently, to detect load */

static void remove_peer(Peer *peer) {
    for (int at = 0; at < subscriber_count; at++)
        if (subscribers[at] == peer) subscribers[at--] = subscribers[--subscriber_count];
    peers[peer->fd] = NULL;
    close(peer->fd);
    free(peer->out);
    free(peer);
}

static void watch_events(Peer *peer, uint32_t what) {
    struct epoll_event event = {.events = what, .data.fd = peer->fd};
    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->fd, &event);
}

/* Sends what the socket accepts; queues the rest. */
static void send_or_queue(Peer *peer, const uint8_t *bytes, size_t len) {
    ssize_t sent = peer->out_len ? 0 : send(peer->fd, bytes, len, MSG_NOSIGNAL);
    size_t done = sent > 0 ? (size_t)sent : 0;
    if (done == len) return;
    if (peer->out_len + len > BACKLOG_MAX) exit(3);
    if (peer->out_len + len > peer->out_cap) {
        peer->out_cap = 2 * (peer->out_len + len);
        peer->out = realloc(peer->out, peer->out_cap);
    }
    if (!peer->out_len) watch_events(peer, EPOLLIN | EPOLLOUT);
    memcpy(peer->out + peer->out_len, bytes + done, len - done);
    peer->out_len += len - done;
}

static void send_queued(Peer *peer) {
    ssize_t sent = send(peer->fd, peer->out + peer->out_at, peer->out_len - peer->out_at, MSG_NOSIGNAL);
    if (sent > 0) peer->out_at += (size_t)sent;
    if (peer->out_at < peer->out_len) return;
    peer->out_at = peer->out_len = 0;
    watch_events(peer, EPOLLIN);
}

static void send_gathered(void) {
    for (int at = 0; at < subscriber_count && gathered_len; at++) send_or_queue(subscribers[at], gathered, gathered_len);
    gathered_len = 0;
}

/* Under load, waits a moment to gather messages: many small sends would cost more than the messages themselves. */
static void gather(void) {
    static int64_t since;
    if (now_ns() - since < GATHER_US * 1000 && forwarded < LOAD_MIN) return;
    if (forwarded >= LOAD_MIN) usleep(GATHER_US);
    since = now_ns();
    forwarded = 0;
}

static void answer(Peer *peer, const Packet *packet, const uint8_t *whole, uint8_t *acks, size_t *acks_len) {
    static const uint8_t connack[] = {CONNACK << 4, 2, 0, 0};
    uint8_t suback[] = {SUBACK << 4, 3, packet->body[0], packet->body[1], 0};
    unsigned id = 0;
    size_t len;
    if (packet->type == CONNECT) send_or_queue(peer, connack, sizeof connack);
    if (packet->type == SUBSCRIBE) {
        send_or_queue(peer, suback, sizeof suback);
        if (!peer->is_subscriber && subscriber_count < PEERS_MAX) subscribers[subscriber_count++] = peer;
        peer->is_subscriber = 1;
    }
    if (packet->type != PUBLISH || !payload_of(packet, &id, &len)) return;
    if (packet->qos) {
        *acks_len += put_ack(acks + *acks_len, PUBACK, id);
        return;
    }
    if (gathered_len + packet->whole_len > ROUND_MAX) send_gathered();
    memcpy(gathered + gathered_len, whole, packet->whole_len);
    gathered_len += packet->whole_len;
    forwarded++;
}

static void receive(Peer *peer) {
    static uint8_t incoming[PACKET_MAX + READ_MAX], acks[READ_MAX];
    memcpy(incoming, peer->stash, peer->stashed);
    ssize_t got = recv(peer->fd, incoming + peer->stashed, READ_MAX, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        remove_peer(peer);
        return;
    }
    size_t len = peer->stashed + (size_t)got, at = 0, acks_len = 0;
    Packet packet;
    while (at < len && next_packet(incoming + at, len - at, &packet) == 1) {
        answer(peer, &packet, incoming + at, acks, &acks_len);
        at += packet.whole_len;
    }
    if (acks_len) send_or_queue(peer, acks, acks_len);
    peer->stashed = len - at;
    memcpy(peer->stash, incoming + at, peer->stashed);
}

static void accept_clients(int listener) {
    int on = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= PEERS_MAX) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peers[fd] = calloc(1, sizeof(Peer));
        peers[fd]->fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int count, char **arguments) {
    struct epoll_event events[256], first = {.events = EPOLLIN};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    here.sin_port = htons((uint16_t)(count > 1 ? atoi(arguments[1]) : 0));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1024)) return 2;
    epoll = epoll_create1(0);
    first.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &first);
    for (;;) {
        gather();
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int at = 0; at < ready; at++) {
            Peer *peer = peers[events[at].data.fd];
            if (events[at].data.fd == listener) accept_clients(listener);
            if (peer && events[at].events & EPOLLOUT) send_queued(peer);
            if (peer && events[at].events & ~(uint32_t)EPOLLOUT) receive(peer);
        }
        send_gathered();
    }
}
