/* What the modes of the hub's load generator share: a loop that sleeps, and messages that say who sent them when.
 *
 * Edges, centre and Kafka have the two cores to themselves but for what the generator truly needs: it never spins.
 */
#ifndef HUB_H
#define HUB_H

#include "link.h"

#define PAYLOAD_LEN 64
#define PROBE UINT32_MAX /* the number of a message that only asks whether the way is open */
#define PROBE_GAP_NS 50000000LL
#define READY_NS_MAX 30000000000LL

/* The payload's beginning: when it was handed to the connection, in which run, by whom or to whom, the how-manieth. */
typedef struct {
    int64_t sent;
    uint32_t run, who, number, side;
} Stamp;

/* A histogram with a sum, for means. */
typedef struct {
    Histogram times;
    double sum_ns;
} Times;

static inline void put_time(Times *times, int64_t ns) {
    count_in(&times->times, ns);
    times->sum_ns += (double)(ns > 0 ? ns : 0);
}
static inline double mean_us(const Times *times) {
    return times->times.total ? times->sum_ns / (double)times->times.total / 1e3 : 0.0;
}

/* Queues a PUBLISH and sends what goes; dies when the broker hung up. */
void publish(Link *link, const char *topic, int qos, const Stamp *said);

/* Waits until something comes or `until`; gives what epoll found. */
int wait_until(int epoll, struct epoll_event *events, int room_for, int64_t until);

/* Begins to connect without waiting for it; the CONNECT goes out when the socket lets it. */
void begin_link(Link *link, int epoll, int number, int port, const char *client_id);

/* The share of one core that this process has used since. */
double core_share(int64_t cpu_before, int64_t wall_before);
int64_t process_cpu_ns(void);

void print_times(const char *name, const Times *times);

static inline int is_repeated(const Packet *packet) { return packet->body[-(long)(packet->whole_len - packet->body_len)] >> 3 & 1; }

int run_spread(int publish_port, int subscribe_port, int qos, int subscribers);
int run_roam(int count, char **words);

#endif
