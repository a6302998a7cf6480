/* Publishers at one broker, subscribers at it or at another one, every message to every subscriber (DPSMD D13).
 *
 *   load spread PUBLISH_PORT SUBSCRIBE_PORT QOS SUBSCRIBERS     then, line by line on standard input: PUBLISHERS PACKETS GAP_MS
 *
 * Publishers take turns within the gap. A message is timed from when it was handed to its connection, whether the broker takes it
 * or not, until a subscriber has it.
 */
#include <stdio.h>
#include <unistd.h>

#include "hub.h"

#define PUBLISHERS_MAX 100
#define SUBSCRIBERS_MAX 100
#define DRAIN_NS 15000000000LL
#define QUIET_NS 4000000000LL

typedef struct {
    int epoll, qos, subscribers;
    Link givers[PUBLISHERS_MAX], takers[SUBSCRIBERS_MAX];
    char topics[PUBLISHERS_MAX][32];
    uint32_t run, next_number[PUBLISHERS_MAX], wanted_number[SUBSCRIBERS_MAX][PUBLISHERS_MAX];
    int is_open[SUBSCRIBERS_MAX];
    int64_t now, sent, acked, received, wrong;
    Times taken;
    Histogram lateness;
} Spread;

static int on_packet(Link *link, const Packet *packet, void *context) {
    Spread *spread = context;
    unsigned id = 0;
    size_t len = 0;
    Stamp said;
    if (packet->type == PUBACK) {
        link->unacked--;
        spread->acked++;
    }
    if (packet->type != PUBLISH) return 0;
    const uint8_t *payload = payload_of(packet, &id, &len);
    if (!payload || len != PAYLOAD_LEN) return -1;
    if (packet->qos) queued(link, put_ack(room(link, 4), PUBACK, id));
    memcpy(&said, payload, sizeof said);
    if (said.number == PROBE) {
        spread->is_open[link->number] |= said.run == spread->run;
        return 0;
    }
    /* Every message of every publisher, once and in order: one that is lost, doubled or overtaken shows here. */
    if (said.run != spread->run || said.who >= PUBLISHERS_MAX ||
        spread->wanted_number[link->number][said.who]++ != said.number) {
        spread->wrong++;
        return 0;
    }
    spread->received++;
    put_time(&spread->taken, spread->now - said.sent);
    return 0;
}

static void take_in(Spread *spread, int64_t until) {
    struct epoll_event events[256];
    int ready = wait_until(spread->epoll, events, 256, until);
    for (int at = 0; at < ready; at++) {
        Link *link = events[at].data.ptr;
        spread->now = now_ns();
        if (take(link, on_packet, spread) < 0) die("the broker hung up");
        if (backlog(link) && flush(link) < 0) die("the broker hung up");
    }
}

/* Until a message of each publisher's broker has reached every subscriber: edges learn of subscriptions elsewhere by and by. */
static void open_ways(Spread *spread) {
    int64_t started = now_ns(), next = started;
    for (int open = 0; open < spread->subscribers;) {
        int64_t now = now_ns();
        if (now >= next) {
            Stamp said = {now, spread->run, 0, PROBE, 0};
            publish(&spread->givers[0], spread->topics[0], spread->qos, &said);
            next = now + PROBE_GAP_NS;
        }
        take_in(spread, next);
        open = 0;
        for (int at = 0; at < spread->subscribers; at++) open += spread->is_open[at];
        if (now - started > READY_NS_MAX) die("messages do not reach all subscribers");
    }
}

static int is_complete(const Spread *spread) {
    return spread->received >= spread->sent * spread->subscribers && (!spread->qos || spread->acked >= spread->sent);
}

static void drain(Spread *spread) {
    int64_t started = now_ns(), last = started, seen = -1;
    while (!is_complete(spread)) {
        int64_t now = now_ns(), all = spread->received + spread->acked;
        if (all != seen) last = now;
        seen = all;
        if (now - started > DRAIN_NS || now - last > QUIET_NS) return;
        take_in(spread, now + 50000000LL);
    }
}

static void forget_run(Spread *spread) {
    spread->run++;
    spread->sent = spread->received = spread->wrong = spread->acked = 0;
    memset(spread->next_number, 0, sizeof spread->next_number);
    memset(spread->wanted_number, 0, sizeof spread->wanted_number);
    memset(spread->is_open, 0, sizeof spread->is_open);
    memset(&spread->taken, 0, sizeof spread->taken);
    memset(&spread->lateness, 0, sizeof spread->lateness);
}

static void run_step(Spread *spread, int publishers, int packets, double gap_ms) {
    open_ways(spread);
    int64_t quiet_until = now_ns() + 4 * PROBE_GAP_NS; /* the last probes and their acknowledgements come in */
    while (now_ns() < quiet_until) take_in(spread, quiet_until);
    spread->acked = 0;
    int64_t cpu = process_cpu_ns(), started = now_ns(), total = (int64_t)publishers * packets;
    double gap = gap_ms * 1e6 / publishers;
    for (int64_t next = 0; next < total;) {
        int64_t now = now_ns(), due = started + (int64_t)((double)next * gap);
        for (; next < total && due <= now; due = started + (int64_t)((double)++next * gap)) {
            int who = (int)(next % publishers);
            Stamp said = {now_ns(), spread->run, (uint32_t)who, spread->next_number[who]++, 0};
            count_in(&spread->lateness, said.sent - due);
            publish(&spread->givers[who], spread->topics[who], spread->qos, &said);
            spread->sent++;
        }
        take_in(spread, due);
    }
    double share = core_share(cpu, started), seconds = (double)(now_ns() - started) / 1e9;
    drain(spread);
    printf("{");
    print_times("taken", &spread->taken);
    printf("\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"acked\": %ld, \"wrong\": %ld, \"seconds\": %.3f, \"late_p99_us\": %.1f, "
           "\"share\": %.4f, \"complete\": %s}\n",
           spread->sent, spread->sent * spread->subscribers, spread->received, spread->acked, spread->wrong, seconds,
           percentile_us(&spread->lateness, 0.99), share, is_complete(spread) && !spread->wrong ? "true" : "false");
    fflush(stdout);
}

int run_spread(int publish_port, int subscribe_port, int qos, int subscribers) {
    static Spread spread;
    char name[32];
    int publishers, packets;
    double gap_ms;
    if (subscribers > SUBSCRIBERS_MAX) die("too many subscribers");
    spread.qos = qos;
    spread.subscribers = subscribers;
    spread.epoll = epoll_create1(0);
    for (int at = 0; at < subscribers; at++) {
        snprintf(name, sizeof name, "taker-%d-%03d", getpid(), at);
        open_link(&spread.takers[at], at, subscribe_port, 0, name, 1);
        subscribe(&spread.takers[at], "bench/hub/+", qos);
        watch(&spread.takers[at], spread.epoll);
    }
    for (int at = 0; at < PUBLISHERS_MAX; at++) {
        snprintf(name, sizeof name, "giver-%d-%03d", getpid(), at);
        open_link(&spread.givers[at], at, publish_port, 0, name, 1);
        watch(&spread.givers[at], spread.epoll);
        snprintf(spread.topics[at], sizeof spread.topics[at], "bench/hub/%03d", at);
    }
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (scanf("%d %d %lf", &publishers, &packets, &gap_ms) == 3) {
        if (publishers < 1 || publishers > PUBLISHERS_MAX) die("too many publishers");
        forget_run(&spread);
        run_step(&spread, publishers, packets, gap_ms);
    }
    for (int at = 0; at < subscribers; at++) close_link(&spread.takers[at]);
    for (int at = 0; at < PUBLISHERS_MAX; at++) close_link(&spread.givers[at]);
    return 0;
}
