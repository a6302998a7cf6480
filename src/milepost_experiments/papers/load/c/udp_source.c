/* Sends the reports of many endpoints, as fast as possible or at a rate; each session always from the same socket.
 *
 *   udp-source PORT SECONDS FILE [--rate N] [--count N] [--sockets N] [--encrypted 1] [--counter N] [--walk-mps V] [--core N]
 *
 * PORT     destination on 127.0.0.1. SECONDS: the duration; it ends earlier when N datagrams (--count) are sent.
 * FILE     of sessions, see encryption.h. They report round-robin. Before a report is sent, its seen_at is set to the current time, and
 *          its latitude to that of an endpoint that drives north at V metres per second (--walk-mps, default 0) since the start.
 * --rate   datagrams per second in all (default: as fast as possible).
 * --sockets  number of source addresses (default 1); all sessions report equally often if it divides their number.
 * --encrypted 1: as DATA, encrypted when sent (so that their times are true), with counters from N (--counter, default 0).
 *
 * One line of JSON: sent, failed (refused by the kernel), seconds, cpu_s, per_s, busy (the share of the time in which it did not wait
 * for the next datagram to be due: near 1 the source is the bottleneck) and late_ms (the maximum delay behind its rate).
 *
 * So that the source is not the bottleneck, datagrams of equal length are passed to the kernel as one (UDP_SEGMENT), which splits
 * them before they reach the receiver's socket: the receiver sees no difference.
 */
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>

#include "encryption.h"
#include "udp.h"

#define DEGREES_A_METRE (1.0 / 111195.0)
#define PAUSE_US 20
#define FULL_US 50
#define SEGMENTS_MAX 64
#define SEGMENTS_BYTES_MAX 60000

typedef struct {
    int fds[SOCKETS_MAX];
    size_t next[SOCKETS_MAX]; /* the session that reports next from this socket */
    int socket_count, is_encrypted;
    double walk_mps, rate;
    int64_t begun_ns, until_ns, most, sent, failed, waited_ns, late_ns;
} Source;

/* Control message for datagrams of equal length that are passed to the kernel as one. */
typedef union {
    struct cmsghdr head;
    uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
} Segmented;

static Batch batch;
static Segmented segmented[BATCH];

static size_t write_report(Session *session, const Source *source, int64_t now, uint8_t *to) {
    if (session->seen_at_at != NOWHERE) {
        int64_t seen_at = wall_ns();
        memcpy(session->plain + session->seen_at_at, &seen_at, 8);
    }
    if (session->latitude_at != NOWHERE) {
        double latitude = session->latitude + source->walk_mps * 1e-9 * (double)(now - source->begun_ns) * DEGREES_A_METRE;
        memcpy(session->plain + session->latitude_at, &latitude, 8);
    }
    if (source->is_encrypted) return encrypt(session, session->plain, session->len, to);
    memcpy(to, session->plain, session->len);
    return session->len;
}

/* Writes the reports of the next sessions of one socket. */
static void fill(Source *source, const Sessions *sessions, int which, int wanted, int64_t now) {
    for (int at = 0; at < wanted; at++) {
        size_t number = source->next[which];
        batch.pieces[at].iov_len = write_report(&sessions->all[number], source, now, batch.bytes[at]);
        number += (size_t)source->socket_count;
        source->next[which] = number < sessions->count ? number : (size_t)which;
    }
}

static void segment(struct msghdr *head, Segmented *control, size_t len) {
    uint16_t size = (uint16_t)len;
    control->head = (struct cmsghdr){CMSG_LEN(sizeof size), SOL_UDP, UDP_SEGMENT};
    memcpy(CMSG_DATA(&control->head), &size, sizeof size);
    head->msg_control = control;
    head->msg_controllen = sizeof *control;
}

/* One header for each run of datagrams of equal length; returns their number. */
static int join(int wanted) {
    int runs = 0;
    for (int at = 0; at < wanted; runs++) {
        size_t len = batch.pieces[at].iov_len, most = SEGMENTS_BYTES_MAX / (len + 1), run = 1;
        if (most > SEGMENTS_MAX) most = SEGMENTS_MAX;
        while (run < most && at + (int)run < wanted && batch.pieces[at + (int)run].iov_len == len) run++;
        struct msghdr *head = &batch.heads[runs].msg_hdr;
        *head = (struct msghdr){.msg_iov = &batch.pieces[at], .msg_iovlen = run};
        if (run > 1) segment(head, &segmented[runs], len);
        at += (int)run;
    }
    return runs;
}

static void send_batch(Source *source, int which, int wanted) {
    int runs = join(wanted);
    for (int done = 0; done < runs && now_ns() < source->until_ns;) {
        int taken = sendmmsg(source->fds[which], batch.heads + done, (unsigned)(runs - done), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken > 0) {
            for (int until = done + taken; done < until; done++) source->sent += (int64_t)batch.heads[done].msg_hdr.msg_iovlen;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            sleep_us(FULL_US);
        } else {
            source->failed += (int64_t)batch.heads[done++].msg_hdr.msg_iovlen;
        }
    }
}

/* Returns how many are due now, a batch at most. */
static int due(Source *source, int64_t now) {
    int64_t done = source->sent + source->failed, left = source->most - done;
    if (source->rate > 0) {
        int64_t by_now = (int64_t)(source->rate * 1e-9 * (double)(now - source->begun_ns)) + 1 - done;
        int64_t late = now - source->begun_ns - (int64_t)(1e9 * (double)done / source->rate);
        if (late > source->late_ns) source->late_ns = late;
        left = by_now < left ? by_now : left;
    }
    return (int)(left < BATCH ? left : BATCH);
}

static void run(Source *source, const Sessions *sessions) {
    int which = 0;
    while (source->sent + source->failed < source->most) {
        int64_t now = now_ns();
        if (now >= source->until_ns) break;
        int wanted = due(source, now);
        if (wanted <= 0) {
            sleep_us(PAUSE_US);
            source->waited_ns += now_ns() - now;
            continue;
        }
        fill(source, sessions, which, wanted, now);
        send_batch(source, which, wanted);
        which = (which + 1) % source->socket_count;
    }
}

static void open_sockets(Source *source, int port) {
    struct sockaddr_in to = loopback(port);
    for (int at = 0; at < source->socket_count; at++) {
        source->fds[at] = open_socket(0);
        source->next[at] = (size_t)at;
        check(connect(source->fds[at], (struct sockaddr *)&to, sizeof to) == 0, "no route to the destination");
    }
}

int main(int count, char **arguments) {
    static Source source;
    int port = (int)argument(count, arguments, 1, 1, 65535);
    double seconds = argument(count, arguments, 2, 0, SECONDS_MAX);
    check(count > 3, "the file of sessions is missing");
    Sessions sessions = read_sessions(arguments[3]);
    source.rate = number_of(count, arguments, "--rate", 0, 0, 1e8);
    source.most = (int64_t)number_of(count, arguments, "--count", 1e15, 1, 1e15);
    source.socket_count = (int)number_of(count, arguments, "--sockets", 1, 1, SOCKETS_MAX);
    source.is_encrypted = (int)number_of(count, arguments, "--encrypted", 0, 0, 1);
    source.walk_mps = number_of(count, arguments, "--walk-mps", 0, -500, 500);
    check((size_t)source.socket_count <= sessions.count, "more sockets than sessions");
    double counter = number_of(count, arguments, "--counter", 0, 0, 1e15);
    for (size_t at = 0; at < sessions.count; at++) sessions.all[at].counter = (uint64_t)counter;
    pin((long)number_of(count, arguments, "--core", -1, 0, CPU_SETSIZE - 1));
    open_sockets(&source, port);
    prepare(&batch);
    double cpu_before_s = cpu_s();
    source.begun_ns = now_ns();
    source.until_ns = source.begun_ns + (int64_t)(seconds * 1e9);
    run(&source, &sessions);
    double took = 1e-9 * (double)(now_ns() - source.begun_ns);
    printf("{\"sent\": %ld, \"failed\": %ld, \"seconds\": %.6f, \"cpu_s\": %.6f, ", source.sent, source.failed, took,
           cpu_s() - cpu_before_s);
    printf("\"per_s\": %.1f, \"busy\": %.4f, \"late_ms\": %.3f}\n", (double)source.sent / took,
           1.0 - 1e-9 * (double)source.waited_ns / took, 1e-6 * (double)source.late_ns);
}
