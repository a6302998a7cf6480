/* Closed loop, QoS 1: each client sends its next message when an earlier one is acknowledged; nobody is there to take them.
 *
 *   load trips PORT CLIENTS IN_FLIGHT SECONDS WARM   persistent sessions, now away, subscribed before: every message must be kept
 *   load collect PORT EXPECTED                       these sessions come back: how many of the messages 0 ... EXPECTED - 1 were kept?
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "link.h"
#include "modes.h"

#define CLIENTS_MAX 1000
#define IN_FLIGHT_MAX 64
#define PAYLOAD_LEN 64
#define KEEPERS 10 /* each is there for every tenth client, so that no queue grows beyond what brokers allow */
#define DRAIN_NS 10000000000LL
#define COLLECT_NS 60000000000LL
#define QUIET_NS 3000000000LL

typedef struct {
    int epoll, in_flight, is_over;
    Link clients[CLIENTS_MAX];
    int64_t sent_at[CLIENTS_MAX][IN_FLIGHT_MAX]; /* by packet id, which runs from 1 to in_flight and is used again */
    int64_t now, measured_from, measured_until, sent, acked, in_window;
    Effort effort;
    Histogram latency;
} Trips;

static void send_one(Trips *trips, Link *link, unsigned id) {
    char topic[32];
    size_t id_at;
    uint8_t *to = room(link, 256);
    snprintf(topic, sizeof topic, "bench/keep/%d/%03d", link->number % KEEPERS, link->number);
    size_t at = put_publish(to, topic, 1, PAYLOAD_LEN, &id_at);
    put_u16(to + id_at, id);
    memset(to + at, 'x', PAYLOAD_LEN);
    memcpy(to + at, &trips->sent, 8);
    queued(link, at + PAYLOAD_LEN);
    trips->sent_at[link->number][id - 1] = trips->now;
    trips->sent++;
}

static int on_ack(Link *link, const Packet *packet, void *context) {
    Trips *trips = context;
    if (packet->type != PUBACK || packet->body_len < 2) return -1;
    unsigned id = get_u16(packet->body);
    if (id < 1 || id > (unsigned)trips->in_flight) return -1;
    trips->acked++;
    if (trips->now >= trips->measured_from && trips->now < trips->measured_until) {
        trips->in_window++;
        count_in(&trips->latency, trips->now - trips->sent_at[link->number][id - 1]);
    }
    if (!trips->is_over) send_one(trips, link, id);
    return 0;
}

static void take_turn(Trips *trips) {
    struct epoll_event events[256];
    int64_t before = now_ns();
    int ready = epoll_wait(trips->epoll, events, 256, 0);
    if (!ready) count_idle(&trips->effort, now_ns() - before);
    for (int at = 0; at < ready; at++) {
        Link *link = events[at].data.ptr;
        trips->now = now_ns();
        if (take(link, on_ack, trips) < 0) die("the broker hung up");
        if (backlog(link) && flush(link) < 0) die("the broker hung up");
    }
}

static void open_keeper(Link *keeper, int number, int port) {
    char name[32];
    snprintf(name, sizeof name, "keeper-%d", number);
    open_link(keeper, number, port, 0, name, 0);
}

static void leave_keepers(int port) {
    static Link keeper;
    char topic_filter[32];
    for (int at = 0; at < KEEPERS; at++) {
        open_keeper(&keeper, at, port);
        snprintf(topic_filter, sizeof topic_filter, "bench/keep/%d/+", at);
        subscribe(&keeper, topic_filter, 1);
        close_link(&keeper);
    }
}

int run_trips(int port, int clients, int in_flight, double seconds, double warm) {
    static Trips trips;
    char name[32];
    if (clients > CLIENTS_MAX || in_flight > IN_FLIGHT_MAX) die("too many");
    leave_keepers(port);
    trips.epoll = epoll_create1(0);
    trips.in_flight = in_flight;
    for (int at = 0; at < clients; at++) {
        snprintf(name, sizeof name, "giver-%03d", at);
        open_link(&trips.clients[at], at, port, 0, name, 1);
        watch(&trips.clients[at], trips.epoll);
    }
    begin_effort(&trips.effort);
    int64_t started = trips.now = now_ns();
    trips.measured_from = started + (int64_t)(warm * 1e9);
    trips.measured_until = started + (int64_t)(seconds * 1e9);
    for (int at = 0; at < clients; at++) {
        for (unsigned id = 1; id <= (unsigned)in_flight; id++) send_one(&trips, &trips.clients[at], id);
        if (flush(&trips.clients[at]) < 0) die("the broker hung up");
    }
    while (now_ns() < trips.measured_until) take_turn(&trips);
    double busy = busy_share(&trips.effort);
    trips.is_over = 1;
    for (int64_t until = now_ns() + DRAIN_NS; trips.acked < trips.sent && now_ns() < until;) take_turn(&trips);
    printf("{\"sent\": %ld, \"acked\": %ld, \"rate\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"busy\": %.4f}\n", trips.sent,
           trips.acked, (double)trips.in_window / (seconds - warm), percentile_us(&trips.latency, 0.5),
           percentile_us(&trips.latency, 0.99), busy);
    return 0; /* without a goodbye: the broker may be killed next, and nothing may happen in between */
}

typedef struct {
    uint8_t *has_come;
    int64_t expected, distinct, again;
} Collected;

static int on_kept(Link *link, const Packet *packet, void *context) {
    Collected *collected = context;
    unsigned id = 0;
    size_t len = 0;
    int64_t number;
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) queued(link, put_ack(room(link, 4), PUBACK, id));
    memcpy(&number, payload, 8);
    if (number < 0 || number >= collected->expected) return 0;
    collected->again += collected->has_come[number];
    collected->distinct += !collected->has_come[number];
    collected->has_come[number] = 1;
    return 0;
}

int run_collect(int port, long expected) {
    static Link keepers[KEEPERS];
    struct epoll_event event;
    int epoll = epoll_create1(0);
    Collected collected = {.has_come = calloc((size_t)expected + 1, 1), .expected = expected};
    for (int at = 0; at < KEEPERS; at++) {
        open_keeper(&keepers[at], at, port);
        watch(&keepers[at], epoll);
    }
    int64_t started = now_ns(), last = started, seen = 0;
    while (collected.distinct < expected && now_ns() - started < COLLECT_NS && now_ns() - last < QUIET_NS) {
        if (epoll_wait(epoll, &event, 1, 100) <= 0) continue;
        if (take(event.data.ptr, on_kept, &collected) < 0 || flush(event.data.ptr) < 0) break;
        if (collected.distinct != seen) last = now_ns();
        seen = collected.distinct;
    }
    printf("{\"expected\": %ld, \"kept\": %ld, \"again\": %ld}\n", expected, collected.distinct, collected.again);
    return 0;
}
