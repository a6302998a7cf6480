/* What the modes of the federation load generator share: an event loop that sleeps, and payloads that name their sender and time.
 *
 * Edges, central hub and Kafka share the cores with the generator, which therefore never spins.
 */
#ifndef FEDERATION_LOAD_H
#define FEDERATION_LOAD_H

#include "connection.h"

#define PAYLOAD_LEN 64
#define PROBE UINT32_MAX /* the number of a message that only tests whether the route exists */
#define PROBE_GAP_NS 50000000LL
#define READY_NS_MAX 30000000000LL

/* The beginning of a payload: send time, run, sender or receiver, sequence number, broker of the publisher. */
typedef struct {
    int64_t sent;
    uint32_t run, client, number, side;
} Stamp;

/* A histogram with a sum, for means. */
typedef struct {
    Histogram times;
    double sum_ns;
} LatencyStatistics;

static inline void add_time(LatencyStatistics *times, int64_t ns) {
    add_sample(&times->times, ns);
    times->sum_ns += (double)(ns > 0 ? ns : 0);
}
static inline double mean_us(const LatencyStatistics *times) {
    return times->times.total ? times->sum_ns / (double)times->times.total / 1e3 : 0.0;
}

/* Queues a PUBLISH and sends what the socket accepts; exits if the broker closed the connection. */
void publish(Connection *connection, const char *topic, int qos, const Stamp *stamp);

/* Waits for events, until `until` at most; returns their number. */
int wait_until(int epoll, struct epoll_event *events, int capacity, int64_t until);

/* Starts to connect without waiting; the CONNECT is sent when the socket is writable. */
void begin_connection(Connection *connection, int epoll, int number, int port, const char *client_id);

/* The share of one core that this process has used since the given times. */
double core_share(int64_t cpu_before, int64_t wall_before);
int64_t process_cpu_ns(void);

void print_times(const char *name, const LatencyStatistics *times);

static inline int is_marked_duplicate(const Packet *packet) { return packet->body[-(long)(packet->whole_len - packet->body_len)] >> 3 & 1; }

int run_latency(int publish_port, int subscribe_port, int qos, int subscribers);
int run_roaming(int count, char **arguments);

#endif
