/* Open loop: messages are sent when they are due, whatever the broker does, and carry their due time; every delivery is timed.
 *
 *   load throughput PORT TLS QOS SHAPE     then, line by line on standard input: RATE SECONDS WARM BURST
 *
 * SHAPE  fanout: 100 publishers, 20 subscribers, all to all           groups: 20 topics, each to 10 of 100 subscribers
 *        fanin:  100 publishers of JSON, 1 subscriber                  (a row and a column of a 10 x 10 grid, two topics per subscriber)
 *
 * The loop never sleeps, so that deliveries are timed on arrival; `busy` is the share of time in which it had work to do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "connection.h"
#include "modes.h"

#define PUBLISHERS 100
#define SUBSCRIBERS_MAX 100
#define BINARY_LEN 64
#define JSON_AT 11 /* where digits start in the JSON text: the time, the run, the number, the vehicle */
#define JSON_RUN_AT 37
#define JSON_NUMBER_AT 51
#define JSON_VEHICLE_AT 76
#define JSON_BASE 1000000000000000000LL /* added to the time, so that it always has 19 digits */
#define OVERLOAD_NS 400000000LL         /* a message this late: the rate is too high, stop sending */
#define DRAIN_NS 4000000000LL
#define QUIET_NS 1500000000LL

typedef struct {
    const char *name;
    int subscribers, receivers_per_message, is_json;
} Shape;

static const Shape SHAPES[] = {{"fanout", 20, 20, 0}, {"groups", 100, 10, 0}, {"fanin", 1, 1, 1}};

typedef struct {
    Shape shape;
    int epoll, qos;
    Connection publishers[PUBLISHERS], subscribers[SUBSCRIBERS_MAX];
    uint8_t packet[PUBLISHERS][512]; /* built once; a burst only writes times, run and packet ids into copies */
    size_t packet_len[PUBLISHERS], id_at[PUBLISHERS], payload_at[PUBLISHERS];
    uint32_t run, next_number[PUBLISHERS], expected_number[SUBSCRIBERS_MAX][PUBLISHERS];
    int64_t now, measured_from, sent, acked, received, in_window, wrong;
    Effort effort;
    Histogram latency, lateness;
    int is_overloaded;
} ThroughputRun;

static void put_digits(uint8_t *to, int64_t value, int digits) {
    for (int at = digits - 1; at >= 0; at--, value /= 10) to[at] = (uint8_t)('0' + value % 10);
}

static int64_t get_digits(const uint8_t *from, int digits) {
    int64_t value = 0;
    for (int at = 0; at < digits; at++) value = 10 * value + (from[at] - '0');
    return value;
}

/* The beginning of a payload: due time, run, publisher and its sequence number. */
typedef struct {
    int64_t due;
    uint32_t run, publisher, number;
} Stamp;

static void write_stamp(ThroughputRun *run_state, uint8_t *payload, int64_t due, int publisher) {
    Stamp stamp = {due, run_state->run, (uint32_t)publisher, run_state->next_number[publisher]++};
    if (run_state->shape.is_json) {
        put_digits(payload + JSON_AT, JSON_BASE + due, 19);
        put_digits(payload + JSON_RUN_AT, 1000 + stamp.run, 4);
        put_digits(payload + JSON_NUMBER_AT, 100000000 + stamp.number, 9);
    } else {
        memcpy(payload, &stamp, sizeof stamp);
    }
}

static Stamp read_stamp(const ThroughputRun *run_state, const uint8_t *payload) {
    Stamp stamp;
    memcpy(&stamp, payload, sizeof stamp);
    if (run_state->shape.is_json) {
        stamp.due = get_digits(payload + JSON_AT, 19) - JSON_BASE;
        stamp.run = (uint32_t)get_digits(payload + JSON_RUN_AT, 4) - 1000;
        stamp.number = (uint32_t)get_digits(payload + JSON_NUMBER_AT, 9) - 100000000;
        stamp.publisher = (uint32_t)get_digits(payload + JSON_VEHICLE_AT, 3);
    }
    return stamp;
}

static int on_delivery(Connection *connection, const Packet *packet, void *context) {
    ThroughputRun *run_state = context;
    unsigned id = 0;
    size_t len = 0;
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len < BINARY_LEN) return -1;
    if (packet->qos) advance_output(connection, put_ack(reserve(connection, 4), PUBACK, id));
    Stamp stamp = read_stamp(run_state, payload);
    int64_t waited = run_state->now - stamp.due;
    /* Each message of each publisher is expected once and in order: this detects loss, duplicates and reordering. */
    if (stamp.run != run_state->run || stamp.publisher >= PUBLISHERS || run_state->expected_number[connection->number][stamp.publisher]++ != stamp.number) {
        run_state->wrong++;
        return 0;
    }
    connection->received++;
    run_state->received++;
    if (stamp.due >= run_state->measured_from) {
        run_state->in_window++;
        add_sample(&run_state->latency, waited);
    }
    if (waited > OVERLOAD_NS) run_state->is_overloaded = 1;
    return 0;
}

static int on_ack(Connection *connection, const Packet *packet, void *context) {
    if (packet->type == PUBACK) {
        connection->unacked--;
        ((ThroughputRun *)context)->acked++;
    }
    return 0;
}

static void send_burst(ThroughputRun *run_state, Connection *connection, int burst, int64_t due) {
    int publisher = connection->number;
    size_t len = run_state->packet_len[publisher];
    uint8_t *to = reserve(connection, len * (size_t)burst);
    for (int at = 0; at < burst; at++, to += len) {
        memcpy(to, run_state->packet[publisher], len);
        write_stamp(run_state, to + run_state->payload_at[publisher], due, publisher);
        if (run_state->qos) {
            put_u16(to + run_state->id_at[publisher], connection->next_id);
            connection->next_id = connection->next_id % 65535 + 1;
        }
    }
    advance_output(connection, len * (size_t)burst);
    run_state->sent += burst;
    connection->unacked += run_state->qos ? burst : 0;
    if (flush(connection) < 0) die("the broker closed the connection of a publisher");
    if (backlog(connection) > BACKLOG_MAX || connection->unacked > 60000) run_state->is_overloaded = 1;
}

/* One iteration: receives what has arrived. Returns the number of ready sockets. */
static int receive_ready(ThroughputRun *run_state) {
    struct epoll_event events[256];
    int ready = epoll_wait(run_state->epoll, events, 256, 0);
    for (int at = 0; at < ready; at++) {
        Connection *connection = events[at].data.ptr;
        int is_publisher = connection >= run_state->publishers && connection < run_state->publishers + PUBLISHERS;
        run_state->now = now_ns();
        if (receive_packets(connection, is_publisher ? on_ack : on_delivery, run_state) < 0) die("the broker closed the connection");
        if (backlog(connection) && flush(connection) < 0) die("the broker closed the connection");
    }
    return ready;
}

static int is_complete(const ThroughputRun *run_state) {
    return run_state->received >= run_state->sent * run_state->shape.receivers_per_message && (!run_state->qos || run_state->acked >= run_state->sent);
}

/* After the last message: waits until all have arrived, or nothing arrives any more. */
static void drain(ThroughputRun *run_state) {
    int64_t started = now_ns(), last = started, seen = run_state->received + run_state->acked;
    while (!is_complete(run_state)) {
        receive_ready(run_state);
        int64_t now = now_ns();
        if (run_state->received + run_state->acked != seen) last = now;
        seen = run_state->received + run_state->acked;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
    }
}

static void run_step(ThroughputRun *run_state, double rate, double seconds, double warm, int burst) {
    int64_t started = now_ns() + 2000000, bursts = (int64_t)(rate * seconds / burst), iteration_at = now_ns();
    begin_effort(&run_state->effort);
    double gap = burst * 1e9 / rate;
    run_state->measured_from = started + (int64_t)(warm * 1e9);
    for (int64_t next = 0; next < bursts && !run_state->is_overloaded;) {
        int64_t now = now_ns();
        int work_done = 0;
        for (; work_done < 32 && next < bursts; work_done++, next++) {
            int64_t due = started + (int64_t)((double)next * gap);
            if (due > now) break;
            send_burst(run_state, &run_state->publishers[next % PUBLISHERS], burst, due);
            if (due >= run_state->measured_from) add_sample(&run_state->lateness, now - due);
        }
        work_done += receive_ready(run_state);
        now = now_ns();
        if (!work_done) count_idle(&run_state->effort, now - iteration_at);
        iteration_at = now;
    }
    double busy = busy_share(&run_state->effort);
    drain(run_state);
    int64_t fewest = INT64_MAX, most = 0;
    for (int at = 0; at < run_state->shape.subscribers; at++) {
        int64_t received = run_state->subscribers[at].received;
        fewest = received < fewest ? received : fewest;
        most = received > most ? received : most;
    }
    printf("{\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"acked\": %ld, \"wrong\": %ld, \"fewest\": %ld, \"most\": %ld, "
           "\"rate\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"late_p99_us\": %.1f, "
           "\"busy\": %.4f, \"overloaded\": %s, \"complete\": %s}\n",
           run_state->sent, run_state->sent * run_state->shape.receivers_per_message, run_state->received, run_state->acked, run_state->wrong, fewest, most,
           (double)run_state->in_window / (seconds - warm), percentile_us(&run_state->latency, 0.5), percentile_us(&run_state->latency, 0.99),
           percentile_us(&run_state->latency, 0.999), (double)run_state->latency.max / 1e3, percentile_us(&run_state->lateness, 0.99),
           busy, run_state->is_overloaded ? "true" : "false", is_complete(run_state) ? "true" : "false");
    fflush(stdout);
}

static void reset_step(ThroughputRun *run_state) {
    run_state->run++;
    run_state->sent = run_state->acked = run_state->received = run_state->in_window = run_state->wrong = 0;
    run_state->is_overloaded = 0;
    memset(run_state->next_number, 0, sizeof run_state->next_number);
    memset(run_state->expected_number, 0, sizeof run_state->expected_number);
    memset(&run_state->latency, 0, sizeof run_state->latency);
    memset(&run_state->lateness, 0, sizeof run_state->lateness);
    for (int at = 0; at < run_state->shape.subscribers; at++) run_state->subscribers[at].received = 0;
    for (int at = 0; at < PUBLISHERS; at++) run_state->publishers[at].unacked = 0;
}

static void build_packet(ThroughputRun *run_state, int publisher) {
    char topic[64], payload[256];
    size_t len = BINARY_LEN;
    memset(payload, 'x', sizeof payload);
    snprintf(topic, sizeof topic, "bench/fan/%03d", publisher);
    if (run_state->shape.receivers_per_message == 10) snprintf(topic, sizeof topic, "bench/group/%02d", publisher % 20);
    if (run_state->shape.is_json) {
        snprintf(topic, sizeof topic, "bench/json/%03d", publisher);
        len = (size_t)snprintf(payload, sizeof payload,
                               "{\"sent_ns\":%019lld,\"run\":%04d,\"number\":%09d,\"vehicle\":\"car-%03d\",\"kind\":\"report\",\"latitude\":52.52%03d,"
                               "\"longitude\":13.40%03d,\"speed_kmh\":%d.5}",
                               JSON_BASE, 1000, 100000000, publisher, publisher, publisher, 30 + publisher % 50);
    }
    run_state->payload_at[publisher] = put_publish(run_state->packet[publisher], topic, run_state->qos, len, &run_state->id_at[publisher]);
    memcpy(run_state->packet[publisher] + run_state->payload_at[publisher], payload, len);
    run_state->packet_len[publisher] = run_state->payload_at[publisher] + len;
}

static void join_all(ThroughputRun *run_state, int port, int is_tls) {
    char name[64];
    for (int at = 0; at < run_state->shape.subscribers; at++) {
        Connection *connection = &run_state->subscribers[at];
        snprintf(name, sizeof name, "subscriber-%03d", at);
        open_connection(connection, at, port, is_tls, name, 1);
        if (run_state->shape.receivers_per_message == 10) {
            snprintf(name, sizeof name, "bench/group/%02d", at / 10);
            subscribe(connection, name, run_state->qos);
            snprintf(name, sizeof name, "bench/group/%02d", 10 + at % 10);
            subscribe(connection, name, run_state->qos);
        } else {
            subscribe(connection, run_state->shape.is_json ? "bench/json/+" : "bench/fan/+", run_state->qos);
        }
        watch(connection, run_state->epoll);
    }
    for (int at = 0; at < PUBLISHERS; at++) {
        snprintf(name, sizeof name, "publisher-%03d", at);
        open_connection(&run_state->publishers[at], at, port, is_tls, name, 1);
        watch(&run_state->publishers[at], run_state->epoll);
        build_packet(run_state, at);
    }
}

int run_throughput(int port, int is_tls, int qos, const char *shape) {
    static ThroughputRun run_state;
    double rate, seconds, warm;
    int burst;
    for (size_t at = 0; at < sizeof SHAPES / sizeof *SHAPES; at++)
        if (!strcmp(SHAPES[at].name, shape)) run_state.shape = SHAPES[at];
    if (!run_state.shape.name) die("unknown shape");
    run_state.qos = qos;
    run_state.epoll = epoll_create1(0);
    join_all(&run_state, port, is_tls);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (scanf("%lf %lf %lf %d", &rate, &seconds, &warm, &burst) == 4) {
        reset_step(&run_state);
        run_step(&run_state, rate, seconds, warm, burst);
    }
    for (int at = 0; at < run_state.shape.subscribers; at++) close_connection(&run_state.subscribers[at]);
    for (int at = 0; at < PUBLISHERS; at++) close_connection(&run_state.publishers[at]);
    return 0;
}
