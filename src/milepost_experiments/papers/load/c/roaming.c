/* Endpoints with persistent sessions that move repeatedly between two brokers, while messages at QoS 1 are sent to each.
 *
 *   load roaming PORT PORT ENDPOINTS RATE MOVES PERIOD_MS AWAY_MS
 *
 * Every endpoint has its own topic, and a publisher at each broker that sends to it. Each endpoint makes MOVES moves, one in every
 * period. Moves alternate between three ways: a clean close, an abrupt close, and a takeover while the old connection is open.
 *
 *      connected ──due──▶ away (clean or abrupt close) ──AWAY_MS──▶ connecting ──CONNACK──▶ connected
 *          └──────────────────────── due (takeover) ─────────────────▶┘
 *
 * Results of each move: the time from connecting to CONNACK; the silence, from the last message before the move to the first one
 * after it, minus the time away; and the delay, the maximum latency of a message, counted from when it was sent or when the endpoint
 * connected, whichever is later; only messages count that were sent before CONNACK, or came first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "federation_load.h"

#define ENDPOINTS_MAX 200
#define NUMBERS_MAX 8192
#define MOVES_MAX 64
#define EXAMPLES_MAX 8
#define PUBLISHERS 10 /* at each broker */
#define SIDES 2
#define LEAD_NS 1000000000LL
#define RETRY_NS 50000000LL
#define TRIES_MAX 100
#define QUIET_NS 8000000000LL
#define DRAIN_NS 25000000000LL

enum { CLEAN_CLOSE, ABRUPT_CLOSE, TAKEOVER, WAYS };
enum { CONNECTED, AWAY, CONNECTING };

/* One move, printed if a message was lost around it. */
typedef struct {
    int way;
    int64_t left_at, connack_at;
} Move;

typedef struct {
    Connection connection, old;
    int number, state, at, has_old, tries, moves;
    char name[32], topic[32];
    int64_t due, left_at, connect_at, connack_at, last_at, away_ns, delay_ns;
    int is_first; /* the next message is the first after a move */
    int is_reached[SIDES];
    int64_t highest[SIDES];
    uint32_t next_number[SIDES];
    Move history[MOVES_MAX];
} Endpoint;

typedef struct {
    int epoll, ports[SIDES], endpoints, moves;
    int64_t period, away, now, sent, acked, distinct, duplicated, marked_duplicates, reordered;
    int64_t done, sessions_not_present, refused, disconnects;
    Connection publishers[SIDES][PUBLISHERS];
    Endpoint all[ENDPOINTS_MAX];
    uint8_t is_received[ENDPOINTS_MAX][SIDES][NUMBERS_MAX];
    int64_t sent_at[ENDPOINTS_MAX][SIDES][NUMBERS_MAX];
    LatencyStatistics connack, silence, delay, latency;
    int is_measured;
} RoamingRun;

static RoamingRun roam;

static void record_times(Endpoint *one, const Stamp *stamp) {
    int64_t from = stamp->sent > one->connect_at ? stamp->sent : one->connect_at;
    add_time(&roam.latency, roam.now - stamp->sent);
    int is_of_move = one->moves && (one->is_first || stamp->sent < one->connack_at);
    if (is_of_move && roam.now - from > one->delay_ns) one->delay_ns = roam.now - from;
    if (one->is_first) add_time(&roam.silence, roam.now - one->last_at - one->away_ns);
    one->is_first = 0;
    one->last_at = roam.now;
}

static int on_message(Endpoint *one, Connection *connection, const Packet *packet) {
    unsigned id = 0;
    size_t len = 0;
    Stamp stamp;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) advance_output(connection, put_ack(reserve(connection, 4), PUBACK, id));
    memcpy(&stamp, payload, sizeof stamp);
    if (stamp.client != (uint32_t)one->number || stamp.side >= SIDES) return -1;
    if (stamp.number == PROBE) {
        one->is_reached[stamp.side] = 1;
        return 0;
    }
    uint8_t *is_received = &roam.is_received[one->number][stamp.side][stamp.number];
    if (*is_received) {
        if (is_marked_duplicate(packet))
            roam.marked_duplicates++;
        else
            roam.duplicated++;
        return 0;
    }
    *is_received = 1;
    roam.distinct++;
    if ((int64_t)stamp.number < one->highest[stamp.side]) roam.reordered++;
    else one->highest[stamp.side] = stamp.number;
    record_times(one, &stamp);
    return 0;
}

static void drop(Connection *connection) { /* without DISCONNECT */
    close(connection->fd);
    free(connection->out);
    connection->out = NULL;
}

static void on_connack(Endpoint *one, const Packet *packet) {
    if (packet->body_len != 2 || packet->body[1]) die("an endpoint was refused");
    if (!(packet->body[0] & 1)) roam.sessions_not_present++;
    if (one->has_old) drop(&one->old); /* unread messages are sent again */
    one->has_old = 0;
    one->state = CONNECTED;
    one->tries = 0;
    one->connack_at = roam.now;
    if (one->moves) one->history[one->moves - 1].connack_at = roam.now;
    add_time(&roam.connack, roam.now - one->connect_at);
    roam.done++;
}

static int on_packet(Connection *connection, const Packet *packet, void *context) {
    (void)context;
    Endpoint *one = &roam.all[connection->number];
    if (packet->type == CONNACK) on_connack(one, packet);
    return packet->type == PUBLISH ? on_message(one, connection, packet) : 0;
}

static int on_ack(Connection *connection, const Packet *packet, void *context) {
    (void)context;
    if (packet->type == PUBACK) {
        connection->unacked--;
        roam.acked += roam.is_measured;
    }
    return 0;
}

static void leave(Endpoint *one, int way) {
    one->left_at = roam.now;
    if (!one->is_first) one->away_ns = 0; /* else it moves on before a message arrived: one silence, over both moves */
    one->at = 1 - one->at;
    if (one->delay_ns) add_time(&roam.delay, one->delay_ns);
    one->delay_ns = 0;
    one->history[one->moves++] = (Move){way, roam.now, 0};
    one->due += roam.period;
    one->is_first = 1;
    one->state = AWAY;
    if (way == TAKEOVER) {
        one->old = one->connection;
        one->has_old = 1;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &one->old};
        epoll_ctl(roam.epoll, EPOLL_CTL_MOD, one->old.fd, &event);
    } else if (way == CLEAN_CLOSE) {
        close_connection(&one->connection);
    } else {
        drop(&one->connection);
    }
}

static void arrive(Endpoint *one) {
    if (!one->tries) {
        one->connect_at = roam.now;
        one->away_ns += one->has_old ? 0 : roam.now - one->left_at;
    }
    one->state = CONNECTING;
    begin_connection(&one->connection, roam.epoll, one->number, roam.ports[one->at], one->name);
}

static void on_connection_lost(Endpoint *one, Connection *connection) {
    if (connection == &one->old) {
        drop(&one->old);
        one->has_old = 0;
        return;
    }
    if (one->state == CONNECTING) {
        roam.refused++;
        one->tries++;
    } else {
        roam.disconnects++;
    }
    if (one->tries > TRIES_MAX) die("an endpoint cannot connect");
    drop(&one->connection);
    one->state = AWAY;
    one->left_at = roam.now + RETRY_NS - roam.away;
}

/* Takes the steps of an endpoint that are due; returns the time of the next one. */
static int64_t step(Endpoint *one) {
    roam.now = now_ns();
    if (one->state == CONNECTED && one->moves < roam.moves && one->due <= roam.now) leave(one, (one->number + one->moves) % WAYS);
    int64_t back_at = one->has_old ? one->left_at : one->left_at + roam.away;
    if (one->state == AWAY && back_at <= roam.now) arrive(one);
    if (one->state == AWAY) return back_at;
    return one->state == CONNECTED && one->moves < roam.moves ? one->due : INT64_MAX;
}

static int is_publisher(const Connection *connection) { return connection >= &roam.publishers[0][0] && connection <= &roam.publishers[SIDES - 1][PUBLISHERS - 1]; }

static void receive_ready(int64_t until) {
    struct epoll_event events[256];
    int ready = wait_until(roam.epoll, events, 256, until);
    for (int at = 0; at < ready; at++) {
        Connection *connection = events[at].data.ptr;
        roam.now = now_ns();
        if (is_publisher(connection)) {
            if (receive_packets(connection, on_ack, NULL) < 0 || flush(connection) < 0) die("the broker closed the connection of a publisher");
            continue;
        }
        Endpoint *one = &roam.all[connection->number];
        if (connection == &one->old && !one->has_old) continue; /* closed by another event of this iteration */
        if (connection == &one->connection && one->state == AWAY) continue;
        if (flush(connection) < 0 || receive_packets(connection, on_packet, NULL) < 0) on_connection_lost(one, connection);
        else if (backlog(connection) && flush(connection) < 0) on_connection_lost(one, connection);
    }
}

static void send_to(Endpoint *one, int side, int qos, uint32_t number) {
    Stamp stamp = {now_ns(), 0, (uint32_t)one->number, number, (uint32_t)side};
    if (number != PROBE) roam.sent_at[one->number][side][number] = stamp.sent;
    publish(&roam.publishers[side][one->number % PUBLISHERS], one->topic, qos, &stamp);
}

static void wait_for_routes(void) {
    int64_t started = now_ns();
    for (int closed = 1; closed;) {
        int64_t until = now_ns() + 4 * PROBE_GAP_NS;
        closed = 0;
        for (int at = 0; at < roam.endpoints; at++)
            for (int side = 0; side < SIDES; side++)
                if (!roam.all[at].is_reached[side]) {
                    send_to(&roam.all[at], side, 1, PROBE);
                    closed++;
                }
        while (now_ns() < until) receive_ready(until);
        if (now_ns() - started > READY_NS_MAX) die("messages do not reach all endpoints");
    }
}

static void join_all(void) {
    char name[32];
    for (int side = 0; side < SIDES; side++)
        for (int at = 0; at < PUBLISHERS; at++) {
            Connection *connection = &roam.publishers[side][at];
            snprintf(name, sizeof name, "publisher-%d-%d-%d", getpid(), side, at);
            open_connection(connection, at, roam.ports[side], 0, name, 1);
            watch(connection, roam.epoll);
        }
    for (int at = 0; at < roam.endpoints; at++) {
        Endpoint *one = &roam.all[at];
        one->number = at;
        one->at = at % SIDES;
        one->highest[0] = one->highest[1] = -1;
        snprintf(one->name, sizeof one->name, "mover-%d-%03d", getpid(), at);
        snprintf(one->topic, sizeof one->topic, "bench/roam/%03d", at);
        open_connection(&one->connection, at, roam.ports[one->at], 0, one->name, 0);
        subscribe(&one->connection, one->topic, 1);
        watch(&one->connection, roam.epoll);
    }
}

static int is_settled(void) {
    for (int at = 0; at < roam.endpoints; at++)
        if (roam.all[at].state != CONNECTED || roam.all[at].moves < roam.moves) return 0;
    return roam.distinct >= roam.sent && roam.acked >= roam.sent;
}

/* Runs all steps and events up to `until`. */
static void run_until(int64_t until) {
    int64_t next = until;
    for (int at = 0; at < roam.endpoints; at++) {
        int64_t again = step(&roam.all[at]);
        if (again < next) next = again;
    }
    receive_ready(next);
}

static void drain(void) {
    int64_t started = now_ns(), last = started, seen = -1;
    while (!is_settled()) {
        int64_t now = now_ns(), all = roam.distinct + roam.acked + roam.done;
        if (all != seen) last = now;
        seen = all;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
        run_until(now + 100000000LL);
    }
}

/* Prints a lost message: where it was published, and how long before or after the endpoint's nearest move. */
static void print_lost(const Endpoint *one, int side, uint32_t number, int is_first) {
    static const char *ways[] = {"clean close", "abrupt close", "takeover"};
    int64_t sent = roam.sent_at[one->number][side][number], nearest = INT64_MAX;
    const Move *move = &one->history[0];
    int to = 0;
    for (int at = 0; at < one->moves; at++)
        if (llabs(sent - one->history[at].left_at) < nearest) {
            nearest = llabs(sent - one->history[at].left_at);
            move = &one->history[at];
            to = (one->number + at + 1) % SIDES;
        }
    printf("%s\"number %u to endpoint %d, published at edge %d, %.1f ms after it left for edge %d (%s), %.1f ms after CONNACK there\"",
           is_first ? "" : ", ", number, one->number, side + 1, (double)(sent - move->left_at) / 1e6, to + 1, ways[move->way],
           (double)(sent - move->connack_at) / 1e6);
}

static void print_all_lost(void) {
    int printed = 0;
    printf("\"examples\": [");
    for (int at = 0; at < roam.endpoints; at++)
        for (int side = 0; side < SIDES; side++)
            for (uint32_t number = 0; number < roam.all[at].next_number[side]; number++)
                if (!roam.is_received[at][side][number] && printed < EXAMPLES_MAX) print_lost(&roam.all[at], side, number, !printed++);
    printf("], ");
}

static void print_results(double share, double seconds) {
    for (int at = 0; at < roam.endpoints; at++)
        if (roam.all[at].delay_ns) add_time(&roam.delay, roam.all[at].delay_ns);
    printf("{");
    print_times("connack", &roam.connack);
    print_times("silence", &roam.silence);
    print_times("delay", &roam.delay);
    print_times("latency", &roam.latency);
    print_all_lost();
    printf("\"moves\": %ld, \"sent\": %ld, \"acked\": %ld, \"lost\": %ld, \"duplicated\": %ld, \"marked_duplicates\": %ld, \"reordered\": %ld, "
           "\"sessions_not_present\": %ld, \"refused\": %ld, \"disconnects\": %ld, \"seconds\": %.2f, \"share\": %.4f}\n",
           roam.done, roam.sent, roam.acked, roam.sent - roam.distinct, roam.duplicated, roam.marked_duplicates, roam.reordered,
           roam.sessions_not_present, roam.refused, roam.disconnects, seconds, share);
    fflush(stdout);
}

int run_roaming(int count, char **arguments) {
    (void)count;
    roam.ports[0] = atoi(arguments[2]);
    roam.ports[1] = atoi(arguments[3]);
    roam.endpoints = atoi(arguments[4]);
    double gap = 1e9 / atof(arguments[5]);
    roam.moves = atoi(arguments[6]);
    roam.period = (int64_t)(atof(arguments[7]) * 1e6);
    roam.away = (int64_t)(atof(arguments[8]) * 1e6);
    int64_t total = (int64_t)((double)(2 * LEAD_NS + roam.period * roam.moves) / gap);
    if (roam.endpoints > ENDPOINTS_MAX || total / roam.endpoints / SIDES + 1 > NUMBERS_MAX || roam.moves > MOVES_MAX) die("too many endpoints, messages or moves");
    roam.epoll = epoll_create1(0);
    join_all();
    wait_for_routes();
    printf("{\"ready\": true}\n");
    fflush(stdout);
    roam.is_measured = 1;
    int64_t cpu = process_cpu_ns(), started = now_ns();
    for (int at = 0; at < roam.endpoints; at++) roam.all[at].due = started + LEAD_NS + roam.period * at / roam.endpoints;
    for (int64_t next = 0; next < total;) {
        int64_t now = now_ns(), due = started + (int64_t)((double)next * gap);
        for (; next < total && due <= now; due = started + (int64_t)((double)++next * gap)) {
            Endpoint *one = &roam.all[next % roam.endpoints];
            int side = (int)(next / roam.endpoints % SIDES);
            send_to(one, side, 1, one->next_number[side]++);
            roam.sent++;
        }
        run_until(due);
    }
    double share = core_share(cpu, started), seconds = (double)(now_ns() - started) / 1e9;
    drain();
    print_results(share, seconds);
    return 0;
}
