/* Closed loop at QoS 1: each client sends its next message when an earlier one is acknowledged; the subscribers are offline.
 *
 *   load roundtrips PORT CLIENTS IN_FLIGHT SECONDS WARM   persistent sessions subscribe, then disconnect: every message must be stored
 *   load collect PORT EXPECTED                            these sessions reconnect: how many of the messages 0 ... EXPECTED - 1 arrive?
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "connection.h"
#include "modes.h"

#define CLIENTS_MAX 1000
#define IN_FLIGHT_MAX 64
#define PAYLOAD_LEN 64
#define SESSIONS 10 /* each subscribes to every tenth client, so that no queue exceeds the limits of brokers */
#define DRAIN_NS 10000000000LL
#define COLLECT_NS 60000000000LL
#define QUIET_NS 3000000000LL

typedef struct {
    int epoll, in_flight, is_over;
    Connection clients[CLIENTS_MAX];
    int64_t sent_at[CLIENTS_MAX][IN_FLIGHT_MAX]; /* by packet id, which runs from 1 to in_flight and is reused */
    int64_t now, measured_from, measured_until, sent, acked, in_window;
    Effort effort;
    Histogram latency;
} RoundtripRun;

static void send_one(RoundtripRun *run_state, Connection *connection, unsigned id) {
    char topic[32];
    size_t id_at;
    uint8_t *to = reserve(connection, 256);
    snprintf(topic, sizeof topic, "bench/stored/%d/%03d", connection->number % SESSIONS, connection->number);
    size_t at = put_publish(to, topic, 1, PAYLOAD_LEN, &id_at);
    put_u16(to + id_at, id);
    memset(to + at, 'x', PAYLOAD_LEN);
    memcpy(to + at, &run_state->sent, 8);
    advance_output(connection, at + PAYLOAD_LEN);
    run_state->sent_at[connection->number][id - 1] = run_state->now;
    run_state->sent++;
}

static int on_ack(Connection *connection, const Packet *packet, void *context) {
    RoundtripRun *run_state = context;
    if (packet->type != PUBACK || packet->body_len < 2) return -1;
    unsigned id = get_u16(packet->body);
    if (id < 1 || id > (unsigned)run_state->in_flight) return -1;
    run_state->acked++;
    if (run_state->now >= run_state->measured_from && run_state->now < run_state->measured_until) {
        run_state->in_window++;
        add_sample(&run_state->latency, run_state->now - run_state->sent_at[connection->number][id - 1]);
    }
    if (!run_state->is_over) send_one(run_state, connection, id);
    return 0;
}

static void receive_ready(RoundtripRun *run_state) {
    struct epoll_event events[256];
    int64_t before = now_ns();
    int ready = epoll_wait(run_state->epoll, events, 256, 0);
    if (!ready) count_idle(&run_state->effort, now_ns() - before);
    for (int at = 0; at < ready; at++) {
        Connection *connection = events[at].data.ptr;
        run_state->now = now_ns();
        if (receive_packets(connection, on_ack, run_state) < 0) die("the broker closed the connection");
        if (backlog(connection) && flush(connection) < 0) die("the broker closed the connection");
    }
}

static void open_session(Connection *session, int number, int port) {
    char name[32];
    snprintf(name, sizeof name, "session-%d", number);
    open_connection(session, number, port, 0, name, 0);
}

static void create_sessions(int port) {
    static Connection session;
    char topic_filter[32];
    for (int at = 0; at < SESSIONS; at++) {
        open_session(&session, at, port);
        snprintf(topic_filter, sizeof topic_filter, "bench/stored/%d/+", at);
        subscribe(&session, topic_filter, 1);
        close_connection(&session);
    }
}

int run_roundtrips(int port, int clients, int in_flight, double seconds, double warm) {
    static RoundtripRun run_state;
    char name[32];
    if (clients > CLIENTS_MAX || in_flight > IN_FLIGHT_MAX) die("too many clients or messages in flight");
    create_sessions(port);
    run_state.epoll = epoll_create1(0);
    run_state.in_flight = in_flight;
    for (int at = 0; at < clients; at++) {
        snprintf(name, sizeof name, "publisher-%03d", at);
        open_connection(&run_state.clients[at], at, port, 0, name, 1);
        watch(&run_state.clients[at], run_state.epoll);
    }
    begin_effort(&run_state.effort);
    int64_t started = run_state.now = now_ns();
    run_state.measured_from = started + (int64_t)(warm * 1e9);
    run_state.measured_until = started + (int64_t)(seconds * 1e9);
    for (int at = 0; at < clients; at++) {
        for (unsigned id = 1; id <= (unsigned)in_flight; id++) send_one(&run_state, &run_state.clients[at], id);
        if (flush(&run_state.clients[at]) < 0) die("the broker closed the connection");
    }
    while (now_ns() < run_state.measured_until) receive_ready(&run_state);
    double busy = busy_share(&run_state.effort);
    run_state.is_over = 1;
    for (int64_t until = now_ns() + DRAIN_NS; run_state.acked < run_state.sent && now_ns() < until;) receive_ready(&run_state);
    printf("{\"sent\": %ld, \"acked\": %ld, \"rate\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"busy\": %.4f}\n", run_state.sent,
           run_state.acked, (double)run_state.in_window / (seconds - warm), percentile_us(&run_state.latency, 0.5),
           percentile_us(&run_state.latency, 0.99), busy);
    return 0; /* without DISCONNECT: the broker may be killed next, and nothing may happen in between */
}

typedef struct {
    uint8_t *is_received;
    int64_t expected, distinct, duplicates;
} Collected;

static int on_message(Connection *connection, const Packet *packet, void *context) {
    Collected *collected = context;
    unsigned id = 0;
    size_t len = 0;
    int64_t number;
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) advance_output(connection, put_ack(reserve(connection, 4), PUBACK, id));
    memcpy(&number, payload, 8);
    if (number < 0 || number >= collected->expected) return 0;
    collected->duplicates += collected->is_received[number];
    collected->distinct += !collected->is_received[number];
    collected->is_received[number] = 1;
    return 0;
}

int run_collect(int port, long expected) {
    static Connection sessions[SESSIONS];
    struct epoll_event event;
    int epoll = epoll_create1(0);
    Collected collected = {.is_received = calloc((size_t)expected + 1, 1), .expected = expected};
    for (int at = 0; at < SESSIONS; at++) {
        open_session(&sessions[at], at, port);
        watch(&sessions[at], epoll);
    }
    int64_t started = now_ns(), last = started, seen = 0;
    while (collected.distinct < expected && now_ns() - started < COLLECT_NS && now_ns() - last < QUIET_NS) {
        if (epoll_wait(epoll, &event, 1, 100) <= 0) continue;
        if (receive_packets(event.data.ptr, on_message, &collected) < 0 || flush(event.data.ptr) < 0) break;
        if (collected.distinct != seen) last = now_ns();
        seen = collected.distinct;
    }
    printf("{\"expected\": %ld, \"received\": %ld, \"duplicates\": %ld}\n", expected, collected.distinct, collected.duplicates);
    return 0;
}
