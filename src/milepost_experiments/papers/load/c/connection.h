/* One connection of the generator, plain or TLS, and what all its modes share. */
#ifndef LINK_H
#define LINK_H

#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "mqtt.h"

#define READ_MAX (256 * 1024)
#define BACKLOG_MAX (4 << 20) /* what may wait to be sent on one connection before the broker counts as overloaded */
#define SETUP_S_MAX 20

typedef struct Link {
    int fd, epoll, number;
    SSL *ssl;
    uint8_t *out;
    size_t out_at, out_len, out_cap;
    uint8_t stash[PACKET_MAX]; /* the beginning of a packet whose end has not come yet */
    size_t stashed;
    int waits_to_write;
    unsigned next_id;
    int64_t unacked, received;
} Link;

/* How much of its processor time the generator had something to do: the rest went into turns that found nothing. */
typedef struct {
    int64_t idle_ns, cpu_ns;
} Effort;

/* Where every delivery's latency goes: 64 steps to each doubling, so that a percentile is right within 1.6 %. */
typedef struct {
    int64_t count[64 * 64], total, max;
} Histogram;

typedef int (*OnPacket)(Link *link, const Packet *packet, void *context);

void die(const char *what);
int open_socket(int number);
void open_link(Link *link, int number, int port, int is_tls, const char *client_id, int is_clean);
void subscribe(Link *link, const char *topic_filter, int qos);
void watch(Link *link, int epoll);
void close_link(Link *link);

/* Room at the end of what is to be sent; `queued` says how much of it was used, `flush` sends as much as goes. -1: the broker hung up. */
uint8_t *room(Link *link, size_t len);
static inline void queued(Link *link, size_t len) { link->out_len += len; }
static inline size_t backlog(const Link *link) { return link->out_len - link->out_at; }
int flush(Link *link);

/* Reads what is there and gives every whole packet to `on_packet`; -1 when the broker hung up or sent nonsense. */
int take(Link *link, OnPacket on_packet, void *context);

static inline void begin_effort(Effort *effort) { *effort = (Effort){.cpu_ns = cpu_ns()}; }
/* An empty turn takes a microsecond; one that took much longer was interrupted by another job and not all of it was ours. */
static inline void count_idle(Effort *effort, int64_t ns) { effort->idle_ns += ns < 20000 ? ns : 20000; }
static inline double busy_share(const Effort *effort) {
    double share = 1.0 - (double)effort->idle_ns / (double)(cpu_ns() - effort->cpu_ns + 1);
    return share > 0.0 ? share : 0.0;
}

void count_in(Histogram *histogram, int64_t ns);
double percentile_us(const Histogram *histogram, double share);

#endif
