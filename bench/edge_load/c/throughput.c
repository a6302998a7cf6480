/* Open loop: messages leave when they are due, whatever the broker does, and carry the time they were due; every delivery is timed.
 *
 *   load fan PORT TLS QOS SHAPE     then, line by line on standard input: RATE SECONDS WARM BURST
 *
 * SHAPE  fanout: 100 publishers, 20 subscribers, all to all           groups: 20 topics, each to 10 of 100 subscribers
 *        fanin:  100 publishers of JSON, 1 subscriber                  (a row and a column of a 10 x 10 grid, two topics a subscriber)
 *
 * The loop never sleeps, so that a delivery is timed when it comes; `busy` is the share of time in which it had something to do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "link.h"
#include "modes.h"

#define PUBLISHERS 100
#define SUBSCRIBERS_MAX 100
#define BINARY_LEN 64
#define JSON_AT 11 /* where digits start in the JSON text: the time, the run, the number, the vehicle */
#define JSON_RUN_AT 37
#define JSON_NUMBER_AT 51
#define JSON_WHO_AT 76
#define JSON_BASE 1000000000000000000LL /* added to the time, so that it always has 19 digits */
#define HOPELESS_NS 400000000LL         /* a message this late: the rate is too high, stop sending */
#define DRAIN_NS 4000000000LL
#define QUIET_NS 1500000000LL

typedef struct {
    const char *name;
    int subscribers, takers, is_json;
} Shape;

static const Shape SHAPES[] = {{"fanout", 20, 20, 0}, {"groups", 100, 10, 0}, {"fanin", 1, 1, 1}};

typedef struct {
    Shape shape;
    int epoll, qos;
    Link publishers[PUBLISHERS], subscribers[SUBSCRIBERS_MAX];
    uint8_t packet[PUBLISHERS][512]; /* built once; a burst only writes times, run and packet ids into copies */
    size_t packet_len[PUBLISHERS], id_at[PUBLISHERS], payload_at[PUBLISHERS];
    uint32_t run, next_number[PUBLISHERS], wanted_number[SUBSCRIBERS_MAX][PUBLISHERS];
    int64_t now, measured_from, sent, acked, received, in_window, wrong;
    Effort effort;
    Histogram latency, lateness;
    int is_hopeless;
} Fan;

static void put_digits(uint8_t *to, int64_t value, int digits) {
    for (int at = digits - 1; at >= 0; at--, value /= 10) to[at] = (uint8_t)('0' + value % 10);
}

static int64_t get_digits(const uint8_t *from, int digits) {
    int64_t value = 0;
    for (int at = 0; at < digits; at++) value = 10 * value + (from[at] - '0');
    return value;
}

/* What a payload says: when it was due, in which run, the how-manieth of which publisher. */
typedef struct {
    int64_t due;
    uint32_t run, who, number;
} Stamp;

static void stamp(Fan *fan, uint8_t *payload, int64_t due, int who) {
    Stamp said = {due, fan->run, (uint32_t)who, fan->next_number[who]++};
    if (fan->shape.is_json) {
        put_digits(payload + JSON_AT, JSON_BASE + due, 19);
        put_digits(payload + JSON_RUN_AT, 1000 + said.run, 4);
        put_digits(payload + JSON_NUMBER_AT, 100000000 + said.number, 9);
    } else {
        memcpy(payload, &said, sizeof said);
    }
}

static Stamp stamp_of(const Fan *fan, const uint8_t *payload) {
    Stamp said;
    memcpy(&said, payload, sizeof said);
    if (fan->shape.is_json) {
        said.due = get_digits(payload + JSON_AT, 19) - JSON_BASE;
        said.run = (uint32_t)get_digits(payload + JSON_RUN_AT, 4) - 1000;
        said.number = (uint32_t)get_digits(payload + JSON_NUMBER_AT, 9) - 100000000;
        said.who = (uint32_t)get_digits(payload + JSON_WHO_AT, 3);
    }
    return said;
}

static int on_delivery(Link *link, const Packet *packet, void *context) {
    Fan *fan = context;
    unsigned id = 0;
    size_t len = 0;
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len < BINARY_LEN) return -1;
    if (packet->qos) queued(link, put_ack(room(link, 4), PUBACK, id));
    Stamp said = stamp_of(fan, payload);
    int64_t waited = fan->now - said.due;
    /* Every message of every publisher, once and in order: one that is lost, doubled or overtaken shows here. */
    if (said.run != fan->run || said.who >= PUBLISHERS || fan->wanted_number[link->number][said.who]++ != said.number) {
        fan->wrong++;
        return 0;
    }
    link->received++;
    fan->received++;
    if (said.due >= fan->measured_from) {
        fan->in_window++;
        count_in(&fan->latency, waited);
    }
    if (waited > HOPELESS_NS) fan->is_hopeless = 1;
    return 0;
}

static int on_ack(Link *link, const Packet *packet, void *context) {
    if (packet->type == PUBACK) {
        link->unacked--;
        ((Fan *)context)->acked++;
    }
    return 0;
}

static void send_burst(Fan *fan, Link *link, int burst, int64_t due) {
    int who = link->number;
    size_t len = fan->packet_len[who];
    uint8_t *to = room(link, len * (size_t)burst);
    for (int at = 0; at < burst; at++, to += len) {
        memcpy(to, fan->packet[who], len);
        stamp(fan, to + fan->payload_at[who], due, who);
        if (fan->qos) {
            put_u16(to + fan->id_at[who], link->next_id);
            link->next_id = link->next_id % 65535 + 1;
        }
    }
    queued(link, len * (size_t)burst);
    fan->sent += burst;
    link->unacked += fan->qos ? burst : 0;
    if (flush(link) < 0) die("the broker hung up on a publisher");
    if (backlog(link) > BACKLOG_MAX || link->unacked > 60000) fan->is_hopeless = 1;
}

/* One turn: whatever has come is taken in. Gives the number of sockets that had something. */
static int take_in(Fan *fan) {
    struct epoll_event events[256];
    int ready = epoll_wait(fan->epoll, events, 256, 0);
    for (int at = 0; at < ready; at++) {
        Link *link = events[at].data.ptr;
        int is_publisher = link >= fan->publishers && link < fan->publishers + PUBLISHERS;
        fan->now = now_ns();
        if (take(link, is_publisher ? on_ack : on_delivery, fan) < 0) die("the broker hung up");
        if (backlog(link) && flush(link) < 0) die("the broker hung up");
    }
    return ready;
}

static int is_complete(const Fan *fan) {
    return fan->received >= fan->sent * fan->shape.takers && (!fan->qos || fan->acked >= fan->sent);
}

/* After the last message: until all have come, or nothing comes any more. */
static void drain(Fan *fan) {
    int64_t started = now_ns(), last = started, seen = fan->received + fan->acked;
    while (!is_complete(fan)) {
        take_in(fan);
        int64_t now = now_ns();
        if (fan->received + fan->acked != seen) last = now;
        seen = fan->received + fan->acked;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
    }
}

static void run_step(Fan *fan, double rate, double seconds, double warm, int burst) {
    int64_t started = now_ns() + 2000000, bursts = (int64_t)(rate * seconds / burst), turn_at = now_ns();
    begin_effort(&fan->effort);
    double gap = burst * 1e9 / rate;
    fan->measured_from = started + (int64_t)(warm * 1e9);
    for (int64_t next = 0; next < bursts && !fan->is_hopeless;) {
        int64_t now = now_ns();
        int did = 0;
        for (; did < 32 && next < bursts; did++, next++) {
            int64_t due = started + (int64_t)((double)next * gap);
            if (due > now) break;
            send_burst(fan, &fan->publishers[next % PUBLISHERS], burst, due);
            if (due >= fan->measured_from) count_in(&fan->lateness, now - due);
        }
        did += take_in(fan);
        now = now_ns();
        if (!did) count_idle(&fan->effort, now - turn_at);
        turn_at = now;
    }
    double busy = busy_share(&fan->effort);
    drain(fan);
    int64_t fewest = INT64_MAX, most = 0;
    for (int at = 0; at < fan->shape.subscribers; at++) {
        int64_t got = fan->subscribers[at].received;
        fewest = got < fewest ? got : fewest;
        most = got > most ? got : most;
    }
    printf("{\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"acked\": %ld, \"wrong\": %ld, \"fewest\": %ld, \"most\": %ld, "
           "\"rate\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"late_p99_us\": %.1f, "
           "\"busy\": %.4f, \"hopeless\": %s, \"complete\": %s}\n",
           fan->sent, fan->sent * fan->shape.takers, fan->received, fan->acked, fan->wrong, fewest, most,
           (double)fan->in_window / (seconds - warm), percentile_us(&fan->latency, 0.5), percentile_us(&fan->latency, 0.99),
           percentile_us(&fan->latency, 0.999), (double)fan->latency.max / 1e3, percentile_us(&fan->lateness, 0.99),
           busy, fan->is_hopeless ? "true" : "false", is_complete(fan) ? "true" : "false");
    fflush(stdout);
}

static void forget_step(Fan *fan) {
    fan->run++;
    fan->sent = fan->acked = fan->received = fan->in_window = fan->wrong = 0;
    fan->is_hopeless = 0;
    memset(fan->next_number, 0, sizeof fan->next_number);
    memset(fan->wanted_number, 0, sizeof fan->wanted_number);
    memset(&fan->latency, 0, sizeof fan->latency);
    memset(&fan->lateness, 0, sizeof fan->lateness);
    for (int at = 0; at < fan->shape.subscribers; at++) fan->subscribers[at].received = 0;
    for (int at = 0; at < PUBLISHERS; at++) fan->publishers[at].unacked = 0;
}

static void build_packet(Fan *fan, int who) {
    char topic[64], payload[256];
    size_t len = BINARY_LEN;
    memset(payload, 'x', sizeof payload);
    snprintf(topic, sizeof topic, "bench/fan/%03d", who);
    if (fan->shape.takers == 10) snprintf(topic, sizeof topic, "bench/group/%02d", who % 20);
    if (fan->shape.is_json) {
        snprintf(topic, sizeof topic, "bench/json/%03d", who);
        len = (size_t)snprintf(payload, sizeof payload,
                               "{\"sent_ns\":%019lld,\"run\":%04d,\"number\":%09d,\"vehicle\":\"car-%03d\",\"kind\":\"report\",\"latitude\":52.52%03d,"
                               "\"longitude\":13.40%03d,\"speed_kmh\":%d.5}",
                               JSON_BASE, 1000, 100000000, who, who, who, 30 + who % 50);
    }
    fan->payload_at[who] = put_publish(fan->packet[who], topic, fan->qos, len, &fan->id_at[who]);
    memcpy(fan->packet[who] + fan->payload_at[who], payload, len);
    fan->packet_len[who] = fan->payload_at[who] + len;
}

static void join_all(Fan *fan, int port, int is_tls) {
    char name[64];
    for (int at = 0; at < fan->shape.subscribers; at++) {
        Link *link = &fan->subscribers[at];
        snprintf(name, sizeof name, "taker-%03d", at);
        open_link(link, at, port, is_tls, name, 1);
        if (fan->shape.takers == 10) {
            snprintf(name, sizeof name, "bench/group/%02d", at / 10);
            subscribe(link, name, fan->qos);
            snprintf(name, sizeof name, "bench/group/%02d", 10 + at % 10);
            subscribe(link, name, fan->qos);
        } else {
            subscribe(link, fan->shape.is_json ? "bench/json/+" : "bench/fan/+", fan->qos);
        }
        watch(link, fan->epoll);
    }
    for (int at = 0; at < PUBLISHERS; at++) {
        snprintf(name, sizeof name, "giver-%03d", at);
        open_link(&fan->publishers[at], at, port, is_tls, name, 1);
        watch(&fan->publishers[at], fan->epoll);
        build_packet(fan, at);
    }
}

int run_fan(int port, int is_tls, int qos, const char *shape) {
    static Fan fan;
    double rate, seconds, warm;
    int burst;
    for (size_t at = 0; at < sizeof SHAPES / sizeof *SHAPES; at++)
        if (!strcmp(SHAPES[at].name, shape)) fan.shape = SHAPES[at];
    if (!fan.shape.name) die("there is no such shape");
    fan.qos = qos;
    fan.epoll = epoll_create1(0);
    join_all(&fan, port, is_tls);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (scanf("%lf %lf %lf %d", &rate, &seconds, &warm, &burst) == 4) {
        forget_step(&fan);
        run_step(&fan, rate, seconds, warm, burst);
    }
    for (int at = 0; at < fan.shape.subscribers; at++) close_link(&fan.subscribers[at]);
    for (int at = 0; at < PUBLISHERS; at++) close_link(&fan.publishers[at]);
    return 0;
}
