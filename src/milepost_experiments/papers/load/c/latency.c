/* Publishers at one broker, subscribers at the same or at another one, every message to every subscriber (DPSMD D13).
 *
 *   load latency PUBLISH_PORT SUBSCRIBE_PORT QOS SUBSCRIBERS     then, line by line on standard input: PUBLISHERS PACKETS GAP_MS
 *
 * Publishers send one after the other within the gap. The latency of a message counts from when it was handed to its connection,
 * whether the broker reads it or not, until a subscriber has received it.
 */
#include <stdio.h>
#include <unistd.h>

#include "federation_load.h"

#define PUBLISHERS_MAX 100
#define SUBSCRIBERS_MAX 100
#define DRAIN_NS 15000000000LL
#define QUIET_NS 4000000000LL

typedef struct {
    int epoll, qos, subscriber_count;
    Connection publishers[PUBLISHERS_MAX], subscribers[SUBSCRIBERS_MAX];
    char topics[PUBLISHERS_MAX][32];
    uint32_t run, next_number[PUBLISHERS_MAX], expected_number[SUBSCRIBERS_MAX][PUBLISHERS_MAX];
    int is_reached[SUBSCRIBERS_MAX];
    int64_t now, sent, acked, received, wrong;
    LatencyStatistics latency;
    Histogram lateness;
} LatencyRun;

static int on_packet(Connection *connection, const Packet *packet, void *context) {
    LatencyRun *run_state = context;
    unsigned id = 0;
    size_t len = 0;
    Stamp stamp;
    if (packet->type == PUBACK) {
        connection->unacked--;
        run_state->acked++;
    }
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) advance_output(connection, put_ack(reserve(connection, 4), PUBACK, id));
    memcpy(&stamp, payload, sizeof stamp);
    if (stamp.number == PROBE) {
        run_state->is_reached[connection->number] |= stamp.run == run_state->run;
        return 0;
    }
    /* Each message of each publisher is expected once and in order: this detects loss, duplicates and reordering. */
    if (stamp.run != run_state->run || stamp.client >= PUBLISHERS_MAX ||
        run_state->expected_number[connection->number][stamp.client]++ != stamp.number) {
        run_state->wrong++;
        return 0;
    }
    run_state->received++;
    add_time(&run_state->latency, run_state->now - stamp.sent);
    return 0;
}

static void receive_ready(LatencyRun *run_state, int64_t until) {
    struct epoll_event events[256];
    int ready = wait_until(run_state->epoll, events, 256, until);
    for (int at = 0; at < ready; at++) {
        Connection *connection = events[at].data.ptr;
        run_state->now = now_ns();
        if (receive_packets(connection, on_packet, run_state) < 0) die("the broker closed the connection");
        if (backlog(connection) && flush(connection) < 0) die("the broker closed the connection");
    }
}

/* Waits until a message has reached every subscriber: edges learn of subscriptions at other edges with a delay. */
static void wait_for_routes(LatencyRun *run_state) {
    int64_t started = now_ns(), next = started;
    for (int open = 0; open < run_state->subscriber_count;) {
        int64_t now = now_ns();
        if (now >= next) {
            Stamp stamp = {now, run_state->run, 0, PROBE, 0};
            publish(&run_state->publishers[0], run_state->topics[0], run_state->qos, &stamp);
            next = now + PROBE_GAP_NS;
        }
        receive_ready(run_state, next);
        open = 0;
        for (int at = 0; at < run_state->subscriber_count; at++) open += run_state->is_reached[at];
        if (now - started > READY_NS_MAX) die("messages do not reach all subscribers");
    }
}

static int is_complete(const LatencyRun *run_state) {
    return run_state->received >= run_state->sent * run_state->subscriber_count && (!run_state->qos || run_state->acked >= run_state->sent);
}

static void drain(LatencyRun *run_state) {
    int64_t started = now_ns(), last = started, seen = -1;
    while (!is_complete(run_state)) {
        int64_t now = now_ns(), all = run_state->received + run_state->acked;
        if (all != seen) last = now;
        seen = all;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
        receive_ready(run_state, now + 50000000LL);
    }
}

static void reset_run(LatencyRun *run_state) {
    run_state->run++;
    run_state->sent = run_state->received = run_state->wrong = run_state->acked = 0;
    memset(run_state->next_number, 0, sizeof run_state->next_number);
    memset(run_state->expected_number, 0, sizeof run_state->expected_number);
    memset(run_state->is_reached, 0, sizeof run_state->is_reached);
    memset(&run_state->latency, 0, sizeof run_state->latency);
    memset(&run_state->lateness, 0, sizeof run_state->lateness);
}

static void run_step(LatencyRun *run_state, int publishers, int packets, double gap_ms) {
    wait_for_routes(run_state);
    int64_t quiet_until = now_ns() + 4 * PROBE_GAP_NS; /* the last probes and their acknowledgements arrive */
    while (now_ns() < quiet_until) receive_ready(run_state, quiet_until);
    run_state->acked = 0;
    int64_t cpu = process_cpu_ns(), started = now_ns(), total = (int64_t)publishers * packets;
    double gap = gap_ms * 1e6 / publishers;
    for (int64_t next = 0; next < total;) {
        int64_t now = now_ns(), due = started + (int64_t)((double)next * gap);
        for (; next < total && due <= now; due = started + (int64_t)((double)++next * gap)) {
            int publisher = (int)(next % publishers);
            Stamp stamp = {now_ns(), run_state->run, (uint32_t)publisher, run_state->next_number[publisher]++, 0};
            add_sample(&run_state->lateness, stamp.sent - due);
            publish(&run_state->publishers[publisher], run_state->topics[publisher], run_state->qos, &stamp);
            run_state->sent++;
        }
        receive_ready(run_state, due);
    }
    double share = core_share(cpu, started), seconds = (double)(now_ns() - started) / 1e9;
    drain(run_state);
    printf("{");
    print_times("latency", &run_state->latency);
    printf("\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"acked\": %ld, \"wrong\": %ld, \"seconds\": %.3f, \"late_p99_us\": %.1f, "
           "\"share\": %.4f, \"complete\": %s}\n",
           run_state->sent, run_state->sent * run_state->subscriber_count, run_state->received, run_state->acked, run_state->wrong, seconds,
           percentile_us(&run_state->lateness, 0.99), share, is_complete(run_state) && !run_state->wrong ? "true" : "false");
    fflush(stdout);
}

int run_latency(int publish_port, int subscribe_port, int qos, int subscriber_count) {
    static LatencyRun run_state;
    char name[32];
    int publishers, packets;
    double gap_ms;
    if (subscriber_count > SUBSCRIBERS_MAX) die("too many subscribers");
    run_state.qos = qos;
    run_state.subscriber_count = subscriber_count;
    run_state.epoll = epoll_create1(0);
    for (int at = 0; at < subscriber_count; at++) {
        snprintf(name, sizeof name, "subscriber-%d-%03d", getpid(), at);
        open_connection(&run_state.subscribers[at], at, subscribe_port, 0, name, 1);
        subscribe(&run_state.subscribers[at], "bench/latency/+", qos);
        watch(&run_state.subscribers[at], run_state.epoll);
    }
    for (int at = 0; at < PUBLISHERS_MAX; at++) {
        snprintf(name, sizeof name, "publisher-%d-%03d", getpid(), at);
        open_connection(&run_state.publishers[at], at, publish_port, 0, name, 1);
        watch(&run_state.publishers[at], run_state.epoll);
        snprintf(run_state.topics[at], sizeof run_state.topics[at], "bench/latency/%03d", at);
    }
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (scanf("%d %d %lf", &publishers, &packets, &gap_ms) == 3) {
        if (publishers < 1 || publishers > PUBLISHERS_MAX) die("too many publishers");
        reset_run(&run_state);
        run_step(&run_state, publishers, packets, gap_ms);
    }
    for (int at = 0; at < subscriber_count; at++) close_connection(&run_state.subscribers[at]);
    for (int at = 0; at < PUBLISHERS_MAX; at++) close_connection(&run_state.publishers[at]);
    return 0;
}
