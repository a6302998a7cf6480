/* One MQTT connection of a load generator, plain or TLS, and the measurements that all modes share. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "mqtt.h"

#define READ_MAX (256 * 1024)
#define BACKLOG_MAX (4 << 20) /* unsent bytes on one connection above which the broker counts as overloaded */
#define SETUP_S_MAX 20

typedef struct Connection {
    int fd, epoll, number;
    SSL *ssl;
    uint8_t *out;
    size_t out_at, out_len, out_cap;
    uint8_t stash[PACKET_MAX]; /* the beginning of an incomplete packet */
    size_t stashed;
    int waits_to_write;
    unsigned next_id;
    int64_t unacked, received;
} Connection;

/* The CPU time of the generator, and how much of it was idle: iterations that found no work. */
typedef struct {
    int64_t idle_ns, cpu_ns;
} Effort;

/* Histogram of latencies with 64 bins per power of two: percentiles are exact within 1.6 %. */
typedef struct {
    int64_t count[64 * 64], total, max;
} Histogram;

typedef int (*OnPacket)(Connection *connection, const Packet *packet, void *context);

void die(const char *what);
int open_socket(int number);
void open_connection(Connection *connection, int number, int port, int is_tls, const char *client_id, int is_clean);
void subscribe(Connection *connection, const char *topic_filter, int qos);
void watch(Connection *connection, int epoll);
void close_connection(Connection *connection);

/* `reserve` returns space at the end of the output, `advance_output` marks it as used, `flush` sends what the socket accepts.
 * -1: the broker closed the connection. */
uint8_t *reserve(Connection *connection, size_t len);
static inline void advance_output(Connection *connection, size_t len) { connection->out_len += len; }
static inline size_t backlog(const Connection *connection) { return connection->out_len - connection->out_at; }
int flush(Connection *connection);

/* Reads what has arrived and passes every complete packet to `on_packet`; -1 if the broker closed the connection or sent invalid data. */
int receive_packets(Connection *connection, OnPacket on_packet, void *context);

static inline void begin_effort(Effort *effort) { *effort = (Effort){.cpu_ns = cpu_ns()}; }
/* An idle iteration takes about a microsecond; a much longer one was interrupted by another process, so its length is capped. */
static inline void count_idle(Effort *effort, int64_t ns) { effort->idle_ns += ns < 20000 ? ns : 20000; }
static inline double busy_share(const Effort *effort) {
    double share = 1.0 - (double)effort->idle_ns / (double)(cpu_ns() - effort->cpu_ns + 1);
    return share > 0.0 ? share : 0.0;
}

void add_sample(Histogram *histogram, int64_t ns);
double percentile_us(const Histogram *histogram, double share);

#endif
