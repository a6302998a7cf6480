/* A "broker" that does no work: what comes in at QoS 0 goes out to every subscriber as it is, QoS 1 is acknowledged and forgotten.
 *
 *   relay PORT
 *
 * No topics, no sessions, no checks: what is reached with it the machine and the generator can do at least.
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
#define ROUND_MAX (1 << 20) /* what one turn may gather */
#define BACKLOG_MAX (64 << 20)
#define GATHER_US 1000
#define MANY 10

typedef struct {
    int fd, is_taker;
    uint8_t stash[PACKET_MAX];
    size_t stashed;
    uint8_t *out;
    size_t out_at, out_len, out_cap;
} Peer;

static Peer *peers[PEERS_MAX]; /* by file descriptor */
static Peer *takers[PEERS_MAX];
static int taker_count, epoll;
static uint8_t gathered[ROUND_MAX];
static size_t gathered_len;
static int forwarded; /* of late, to see whether there is load */

static void leave(Peer *peer) {
    for (int at = 0; at < taker_count; at++)
        if (takers[at] == peer) takers[at--] = takers[--taker_count];
    peers[peer->fd] = NULL;
    close(peer->fd);
    free(peer->out);
    free(peer);
}

static void want(Peer *peer, uint32_t what) {
    struct epoll_event event = {.events = what, .data.fd = peer->fd};
    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->fd, &event);
}

/* Sends at once what goes; the rest waits its turn. */
static void give(Peer *peer, const uint8_t *bytes, size_t len) {
    ssize_t sent = peer->out_len ? 0 : send(peer->fd, bytes, len, MSG_NOSIGNAL);
    size_t done = sent > 0 ? (size_t)sent : 0;
    if (done == len) return;
    if (peer->out_len + len > BACKLOG_MAX) exit(3);
    if (peer->out_len + len > peer->out_cap) {
        peer->out_cap = 2 * (peer->out_len + len);
        peer->out = realloc(peer->out, peer->out_cap);
    }
    if (!peer->out_len) want(peer, EPOLLIN | EPOLLOUT);
    memcpy(peer->out + peer->out_len, bytes + done, len - done);
    peer->out_len += len - done;
}

static void give_rest(Peer *peer) {
    ssize_t sent = send(peer->fd, peer->out + peer->out_at, peer->out_len - peer->out_at, MSG_NOSIGNAL);
    if (sent > 0) peer->out_at += (size_t)sent;
    if (peer->out_at < peer->out_len) return;
    peer->out_at = peer->out_len = 0;
    want(peer, EPOLLIN);
}

static void give_round(void) {
    for (int at = 0; at < taker_count && gathered_len; at++) give(takers[at], gathered, gathered_len);
    gathered_len = 0;
}

/* Under load it lets messages gather for a moment: many small sends would cost the machine more than the messages do. */
static void gather(void) {
    static int64_t since;
    if (now_ns() - since < GATHER_US * 1000 && forwarded < MANY) return;
    if (forwarded >= MANY) usleep(GATHER_US);
    since = now_ns();
    forwarded = 0;
}

static void answer(Peer *peer, const Packet *packet, const uint8_t *whole, uint8_t *acks, size_t *acks_len) {
    static const uint8_t connack[] = {CONNACK << 4, 2, 0, 0};
    uint8_t suback[] = {SUBACK << 4, 3, packet->body[0], packet->body[1], 0};
    unsigned id = 0;
    size_t len;
    if (packet->type == CONNECT) give(peer, connack, sizeof connack);
    if (packet->type == SUBSCRIBE) {
        give(peer, suback, sizeof suback);
        if (!peer->is_taker && taker_count < PEERS_MAX) takers[taker_count++] = peer;
        peer->is_taker = 1;
    }
    if (packet->type != PUBLISH || !payload_of(packet, &id, &len)) return;
    if (packet->qos) {
        *acks_len += put_ack(acks + *acks_len, PUBACK, id);
        return;
    }
    if (gathered_len + packet->whole_len > ROUND_MAX) give_round();
    memcpy(gathered + gathered_len, whole, packet->whole_len);
    gathered_len += packet->whole_len;
    forwarded++;
}

static void hear(Peer *peer) {
    static uint8_t incoming[PACKET_MAX + READ_MAX], acks[READ_MAX];
    memcpy(incoming, peer->stash, peer->stashed);
    ssize_t got = recv(peer->fd, incoming + peer->stashed, READ_MAX, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        leave(peer);
        return;
    }
    size_t len = peer->stashed + (size_t)got, at = 0, acks_len = 0;
    Packet packet;
    while (at < len && next_packet(incoming + at, len - at, &packet) == 1) {
        answer(peer, &packet, incoming + at, acks, &acks_len);
        at += packet.whole_len;
    }
    if (acks_len) give(peer, acks, acks_len);
    peer->stashed = len - at;
    memcpy(peer->stash, incoming + at, peer->stashed);
}

static void welcome(int door) {
    int on = 1, fd;
    while ((fd = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
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

int main(int count, char **words) {
    struct epoll_event events[256], first = {.events = EPOLLIN};
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    here.sin_port = htons((uint16_t)(count > 1 ? atoi(words[1]) : 0));
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(door, (struct sockaddr *)&here, sizeof here) || listen(door, 1024)) return 2;
    epoll = epoll_create1(0);
    first.data.fd = door;
    epoll_ctl(epoll, EPOLL_CTL_ADD, door, &first);
    for (;;) {
        gather();
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int at = 0; at < ready; at++) {
            Peer *peer = peers[events[at].data.fd];
            if (events[at].data.fd == door) welcome(door);
            if (peer && events[at].events & EPOLLOUT) give_rest(peer);
            if (peer && events[at].events & ~(uint32_t)EPOLLOUT) hear(peer);
        }
        give_round();
    }
}
