/* Endpoints with persistent sessions that move between two brokers, again and again, while messages at QoS 1 are sent to each.
 *
 *   load roam PORT PORT ENDPOINTS RATE MOVES PERIOD_MS AWAY_MS
 *
 * Every endpoint has a topic of its own, and a publisher at each broker that sends to it. MOVES are those of each endpoint, one in
 * every period. Moves take turns at three ways: a goodbye, a connection that breaks, and a new connection while the old one stands.
 *
 *      here ──due──▶ away (goodbye or break) ──AWAY_MS──▶ greeting ──CONNACK──▶ here
 *        └──────────────── due (old one stands) ─────────────▶┘
 *
 * Told of each move: the time from connecting to CONNACK; the silence, from the last message before it to the first one after it,
 * less the time away; and the wait, the most that a message took, counted from when it was sent or when the endpoint connected,
 * whichever is later; only those count that were sent before CONNACK, or came first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hub.h"

#define ENDPOINTS_MAX 200
#define NUMBERS_MAX 8192
#define MOVES_MAX 64
#define EXAMPLES_MAX 8
#define PUBLISHERS 10 /* at each broker */
#define SIDES 2
#define LEAD_NS 1000000000LL
#define AGAIN_NS 50000000LL
#define TRIES_MAX 100
#define QUIET_NS 8000000000LL
#define DRAIN_NS 25000000000LL

enum { GOODBYE, BREAK, STANDING, WAYS };
enum { HERE, AWAY, GREETING };

/* One move, to be told of when something got lost around it. */
typedef struct {
    int way;
    int64_t left_at, greeted_at;
} Move;

typedef struct {
    Link link, old;
    int number, state, at, has_old, tries, moves;
    char name[32], topic[32];
    int64_t due, left_at, connect_at, greeted_at, last_at, away_ns, wait_ns;
    int is_first; /* the next message is the first after a move */
    int is_open[SIDES];
    int64_t highest[SIDES];
    uint32_t next_number[SIDES];
    Move history[MOVES_MAX];
} Endpoint;

typedef struct {
    int epoll, ports[SIDES], endpoints, moves;
    int64_t period, away, now, sent, acked, distinct, doubled, repeated, overtaken;
    int64_t done, absent_sessions, refused, cut;
    Link givers[SIDES][PUBLISHERS];
    Endpoint all[ENDPOINTS_MAX];
    uint8_t has_come[ENDPOINTS_MAX][SIDES][NUMBERS_MAX];
    int64_t sent_at[ENDPOINTS_MAX][SIDES][NUMBERS_MAX];
    Times greeted, silence, waited, taken;
    int is_measured;
} Roam;

static Roam roam;

static void note_time(Endpoint *one, const Stamp *said) {
    int64_t from = said->sent > one->connect_at ? said->sent : one->connect_at;
    put_time(&roam.taken, roam.now - said->sent);
    int is_of_move = one->moves && (one->is_first || said->sent < one->greeted_at);
    if (is_of_move && roam.now - from > one->wait_ns) one->wait_ns = roam.now - from;
    if (one->is_first) put_time(&roam.silence, roam.now - one->last_at - one->away_ns);
    one->is_first = 0;
    one->last_at = roam.now;
}

static int on_message(Endpoint *one, Link *link, const Packet *packet) {
    unsigned id = 0;
    size_t len = 0;
    Stamp said;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) queued(link, put_ack(room(link, 4), PUBACK, id));
    memcpy(&said, payload, sizeof said);
    if (said.who != (uint32_t)one->number || said.side >= SIDES) return -1;
    if (said.number == PROBE) {
        one->is_open[said.side] = 1;
        return 0;
    }
    uint8_t *has_come = &roam.has_come[one->number][said.side][said.number];
    if (*has_come) {
        if (is_repeated(packet))
            roam.repeated++;
        else
            roam.doubled++;
        return 0;
    }
    *has_come = 1;
    roam.distinct++;
    if ((int64_t)said.number < one->highest[said.side]) roam.overtaken++;
    else one->highest[said.side] = said.number;
    note_time(one, &said);
    return 0;
}

static void drop(Link *link) { /* without a goodbye */
    close(link->fd);
    free(link->out);
    link->out = NULL;
}

static void on_greeting(Endpoint *one, const Packet *packet) {
    if (packet->body_len != 2 || packet->body[1]) die("an endpoint was refused");
    if (!(packet->body[0] & 1)) roam.absent_sessions++;
    if (one->has_old) drop(&one->old); /* what it did not read there is sent again */
    one->has_old = 0;
    one->state = HERE;
    one->tries = 0;
    one->greeted_at = roam.now;
    if (one->moves) one->history[one->moves - 1].greeted_at = roam.now;
    put_time(&roam.greeted, roam.now - one->connect_at);
    roam.done++;
}

static int on_packet(Link *link, const Packet *packet, void *context) {
    (void)context;
    Endpoint *one = &roam.all[link->number];
    if (packet->type == CONNACK) on_greeting(one, packet);
    return packet->type == PUBLISH ? on_message(one, link, packet) : 0;
}

static int on_ack(Link *link, const Packet *packet, void *context) {
    (void)context;
    if (packet->type == PUBACK) {
        link->unacked--;
        roam.acked += roam.is_measured;
    }
    return 0;
}

static void leave(Endpoint *one, int way) {
    one->left_at = roam.now;
    if (!one->is_first) one->away_ns = 0; /* else it moves on before anything came: one silence, over both moves */
    one->at = 1 - one->at;
    if (one->wait_ns) put_time(&roam.waited, one->wait_ns);
    one->wait_ns = 0;
    one->history[one->moves++] = (Move){way, roam.now, 0};
    one->due += roam.period;
    one->is_first = 1;
    one->state = AWAY;
    if (way == STANDING) {
        one->old = one->link;
        one->has_old = 1;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &one->old};
        epoll_ctl(roam.epoll, EPOLL_CTL_MOD, one->old.fd, &event);
    } else if (way == GOODBYE) {
        close_link(&one->link);
    } else {
        drop(&one->link);
    }
}

static void arrive(Endpoint *one) {
    if (!one->tries) {
        one->connect_at = roam.now;
        one->away_ns += one->has_old ? 0 : roam.now - one->left_at;
    }
    one->state = GREETING;
    begin_link(&one->link, roam.epoll, one->number, roam.ports[one->at], one->name);
}

static void lose(Endpoint *one, Link *link) {
    if (link == &one->old) {
        drop(&one->old);
        one->has_old = 0;
        return;
    }
    if (one->state == GREETING) {
        roam.refused++;
        one->tries++;
    } else {
        roam.cut++;
    }
    if (one->tries > TRIES_MAX) die("an endpoint is not let in");
    drop(&one->link);
    one->state = AWAY;
    one->left_at = roam.now + AGAIN_NS - roam.away;
}

/* What is due of an endpoint; gives when to look again. */
static int64_t step(Endpoint *one) {
    roam.now = now_ns();
    if (one->state == HERE && one->moves < roam.moves && one->due <= roam.now) leave(one, (one->number + one->moves) % WAYS);
    int64_t back_at = one->has_old ? one->left_at : one->left_at + roam.away;
    if (one->state == AWAY && back_at <= roam.now) arrive(one);
    if (one->state == AWAY) return back_at;
    return one->state == HERE && one->moves < roam.moves ? one->due : INT64_MAX;
}

static int is_giver(const Link *link) { return link >= &roam.givers[0][0] && link <= &roam.givers[SIDES - 1][PUBLISHERS - 1]; }

static void take_in(int64_t until) {
    struct epoll_event events[256];
    int ready = wait_until(roam.epoll, events, 256, until);
    for (int at = 0; at < ready; at++) {
        Link *link = events[at].data.ptr;
        roam.now = now_ns();
        if (is_giver(link)) {
            if (take(link, on_ack, NULL) < 0 || flush(link) < 0) die("the broker hung up on a publisher");
            continue;
        }
        Endpoint *one = &roam.all[link->number];
        if (link == &one->old && !one->has_old) continue; /* closed by another event of this turn */
        if (link == &one->link && one->state == AWAY) continue;
        if (flush(link) < 0 || take(link, on_packet, NULL) < 0) lose(one, link);
        else if (backlog(link) && flush(link) < 0) lose(one, link);
    }
}

static void send_to(Endpoint *one, int side, int qos, uint32_t number) {
    Stamp said = {now_ns(), 0, (uint32_t)one->number, number, (uint32_t)side};
    if (number != PROBE) roam.sent_at[one->number][side][number] = said.sent;
    publish(&roam.givers[side][one->number % PUBLISHERS], one->topic, qos, &said);
}

static void open_ways(void) {
    int64_t started = now_ns();
    for (int closed = 1; closed;) {
        int64_t until = now_ns() + 4 * PROBE_GAP_NS;
        closed = 0;
        for (int at = 0; at < roam.endpoints; at++)
            for (int side = 0; side < SIDES; side++)
                if (!roam.all[at].is_open[side]) {
                    send_to(&roam.all[at], side, 1, PROBE);
                    closed++;
                }
        while (now_ns() < until) take_in(until);
        if (now_ns() - started > READY_NS_MAX) die("messages do not reach all endpoints");
    }
}

static void join_all(void) {
    char name[32];
    for (int side = 0; side < SIDES; side++)
        for (int at = 0; at < PUBLISHERS; at++) {
            Link *link = &roam.givers[side][at];
            snprintf(name, sizeof name, "giver-%d-%d-%d", getpid(), side, at);
            open_link(link, at, roam.ports[side], 0, name, 1);
            watch(link, roam.epoll);
        }
    for (int at = 0; at < roam.endpoints; at++) {
        Endpoint *one = &roam.all[at];
        one->number = at;
        one->at = at % SIDES;
        one->highest[0] = one->highest[1] = -1;
        snprintf(one->name, sizeof one->name, "mover-%d-%03d", getpid(), at);
        snprintf(one->topic, sizeof one->topic, "bench/roam/%03d", at);
        open_link(&one->link, at, roam.ports[one->at], 0, one->name, 0);
        subscribe(&one->link, one->topic, 1);
        watch(&one->link, roam.epoll);
    }
}

static int is_settled(void) {
    for (int at = 0; at < roam.endpoints; at++)
        if (roam.all[at].state != HERE || roam.all[at].moves < roam.moves) return 0;
    return roam.distinct >= roam.sent && roam.acked >= roam.sent;
}

/* Everything up to `until`, or until all is settled. */
static void go_on(int64_t until) {
    int64_t next = until;
    for (int at = 0; at < roam.endpoints; at++) {
        int64_t again = step(&roam.all[at]);
        if (again < next) next = again;
    }
    take_in(next);
}

static void drain(void) {
    int64_t started = now_ns(), last = started, seen = -1;
    while (!is_settled()) {
        int64_t now = now_ns(), all = roam.distinct + roam.acked + roam.done;
        if (all != seen) last = now;
        seen = all;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
        go_on(now + 100000000LL);
    }
}

/* A message that never came: where it was published, and how long before or after the endpoint's nearest move. */
static void tell_lost(const Endpoint *one, int side, uint32_t number, int is_first) {
    static const char *ways[] = {"goodbye", "break", "old one standing"};
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
           (double)(sent - move->greeted_at) / 1e6);
}

static void tell_all_lost(void) {
    int told = 0;
    printf("\"examples\": [");
    for (int at = 0; at < roam.endpoints; at++)
        for (int side = 0; side < SIDES; side++)
            for (uint32_t number = 0; number < roam.all[at].next_number[side]; number++)
                if (!roam.has_come[at][side][number] && told < EXAMPLES_MAX) tell_lost(&roam.all[at], side, number, !told++);
    printf("], ");
}

static void tell(double share, double seconds) {
    for (int at = 0; at < roam.endpoints; at++)
        if (roam.all[at].wait_ns) put_time(&roam.waited, roam.all[at].wait_ns);
    printf("{");
    print_times("greeted", &roam.greeted);
    print_times("silence", &roam.silence);
    print_times("waited", &roam.waited);
    print_times("taken", &roam.taken);
    tell_all_lost();
    printf("\"moves\": %ld, \"sent\": %ld, \"acked\": %ld, \"lost\": %ld, \"doubled\": %ld, \"repeated\": %ld, \"overtaken\": %ld, "
           "\"absent_sessions\": %ld, \"refused\": %ld, \"cut\": %ld, \"seconds\": %.2f, \"share\": %.4f}\n",
           roam.done, roam.sent, roam.acked, roam.sent - roam.distinct, roam.doubled, roam.repeated, roam.overtaken,
           roam.absent_sessions, roam.refused, roam.cut, seconds, share);
    fflush(stdout);
}

int run_roam(int count, char **words) {
    (void)count;
    roam.ports[0] = atoi(words[2]);
    roam.ports[1] = atoi(words[3]);
    roam.endpoints = atoi(words[4]);
    double gap = 1e9 / atof(words[5]);
    roam.moves = atoi(words[6]);
    roam.period = (int64_t)(atof(words[7]) * 1e6);
    roam.away = (int64_t)(atof(words[8]) * 1e6);
    int64_t total = (int64_t)((double)(2 * LEAD_NS + roam.period * roam.moves) / gap);
    if (roam.endpoints > ENDPOINTS_MAX || total / roam.endpoints / SIDES + 1 > NUMBERS_MAX || roam.moves > MOVES_MAX) die("too many");
    roam.epoll = epoll_create1(0);
    join_all();
    open_ways();
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
        go_on(due);
    }
    double share = core_share(cpu, started), seconds = (double)(now_ns() - started) / 1e9;
    drain();
    tell(share, seconds);
    return 0;
}
