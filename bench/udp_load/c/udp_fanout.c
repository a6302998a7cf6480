/* One datagram to many: how long it takes from the first to the last handed to the kernel, plain and sealed for each.
 *
 *   udp-fan SIZE RECEIVERS [--rounds N] [--core N]
 *
 * SIZE        bytes of the plain datagram. RECEIVERS: how many it goes to; they share a few sockets on 127.0.0.1 that the program
 *             opens itself and empties between the rounds, outside the time that is taken.
 * --rounds    of each kind (default 21), fewer if they take more than 30 s; the median and the least are printed.
 *
 * Plain: all get the same bytes. Sealed: DATA as in seals.h, with a key for each receiver, sealed batch by batch as it is sent.
 *
 * One line of JSON: size, receivers, rounds, plain_ms, plain_least_ms, sealed_ms, sealed_least_ms, failed, dropped (no room in a
 * receiver's socket: should be 0, else the kernel had less to do).
 */
#include <stdio.h>
#include <stdlib.h>

#include "seals.h"
#include "udp.h"

#define RECEIVERS_MAX 100000
#define ROUNDS_MAX 1001
#define MEASURE_NS_MAX 30000000000LL
#define WAITING_BYTES_MAX (BUFFER_BYTES / 2) /* in one receiver's socket; the kernel counts twice the room that was asked for */
#define OVERHEAD_BYTES 1024                  /* the kernel's for each datagram, at most */

typedef struct {
    int fd, receivers, sink_count, sinks[SOCKETS_MAX];
    struct sockaddr_in *addresses;
    Session *sessions;
    uint8_t plain[DATAGRAM_MAX];
    size_t size;
    int64_t failed;
} Fan;

static Batch batch;

static void open_sinks(Fan *fan) {
    int each = WAITING_BYTES_MAX / (int)(2 * fan->size + OVERHEAD_BYTES);
    fan->sink_count = 1 + fan->receivers / each;
    check(fan->sink_count <= SOCKETS_MAX, "too many receivers of so much");
    for (int at = 0; at < fan->sink_count; at++) fan->sinks[at] = open_socket(0);
    for (int at = 0; at < fan->receivers; at++) fan->addresses[at] = loopback(port_of(fan->sinks[at % fan->sink_count]));
}

static void make_keys(Fan *fan) {
    for (int at = 0; at < fan->receivers; at++) {
        fan->sessions[at].token = (uint64_t)at + 1;
        for (int byte = 0; byte < KEY_BYTES; byte++) fan->sessions[at].key[byte] = (uint8_t)(at >> (byte % 4 * 8));
    }
}

static void fill(Fan *fan, int from, int wanted, int is_sealed) {
    for (int at = 0; at < wanted; at++) {
        batch.heads[at].msg_hdr.msg_name = &fan->addresses[from + at];
        batch.heads[at].msg_hdr.msg_namelen = sizeof *fan->addresses;
        batch.pieces[at] = (struct iovec){is_sealed ? batch.bytes[at] : fan->plain, fan->size};
        if (is_sealed) batch.pieces[at].iov_len = seal(&fan->sessions[from + at], fan->plain, fan->size, batch.bytes[at]);
    }
}

/* Nanoseconds from before the first to after the last. */
static int64_t send_round(Fan *fan, int is_sealed) {
    int64_t begun = now_ns();
    for (int from = 0; from < fan->receivers; from += BATCH) {
        int wanted = fan->receivers - from < BATCH ? fan->receivers - from : BATCH;
        fill(fan, from, wanted, is_sealed);
        for (int done = 0; done < wanted;) {
            int taken = sendmmsg(fan->fd, batch.heads + done, (unsigned)(wanted - done), MSG_NOSIGNAL);
            fan->failed += taken <= 0;
            done += taken > 0 ? taken : 1;
        }
    }
    return now_ns() - begun;
}

static void empty_sinks(const Fan *fan) {
    uint8_t bytes[1];
    for (int at = 0; at < fan->sink_count; at++)
        for (int more = 0; more <= fan->receivers && recv(fan->sinks[at], bytes, sizeof bytes, MSG_TRUNC) >= 0;) more++;
}

static int by_size(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Gives how many rounds there were. */
static int measure(Fan *fan, int most, int is_sealed, double *median_ms, double *least_ms) {
    static int64_t taken[ROUNDS_MAX];
    int rounds = 0;
    send_round(fan, is_sealed); /* keys are set up and the processor is warm */
    empty_sinks(fan);
    int64_t until = now_ns() + MEASURE_NS_MAX;
    do {
        taken[rounds++] = send_round(fan, is_sealed);
        empty_sinks(fan);
    } while (rounds < most && now_ns() < until);
    qsort(taken, (size_t)rounds, sizeof *taken, by_size);
    *median_ms = 1e-6 * (double)taken[rounds / 2];
    *least_ms = 1e-6 * (double)taken[0];
    return rounds;
}

int main(int count, char **words) {
    static Fan fan;
    double plain_ms, plain_least_ms, sealed_ms, sealed_least_ms;
    int64_t lost = 0;
    fan.size = (size_t)argument(count, words, 1, 1, DATAGRAM_MAX - DATA_HEAD - TAG_BYTES);
    fan.receivers = (int)argument(count, words, 2, 1, RECEIVERS_MAX);
    int most = (int)number_of(count, words, "--rounds", 21, 1, ROUNDS_MAX);
    pin((long)number_of(count, words, "--core", -1, 0, CPU_SETSIZE - 1));
    fan.addresses = calloc((size_t)fan.receivers, sizeof *fan.addresses);
    fan.sessions = calloc((size_t)fan.receivers, sizeof *fan.sessions);
    check(fan.addresses && fan.sessions, "no memory");
    open_sinks(&fan);
    make_keys(&fan);
    fan.fd = open_socket(0);
    prepare(&batch);
    measure(&fan, most, 0, &plain_ms, &plain_least_ms);
    int rounds = measure(&fan, most, 1, &sealed_ms, &sealed_least_ms);
    for (int at = 0; at < fan.sink_count; at++) lost += dropped(fan.sinks[at]);
    printf("{\"size\": %zu, \"receivers\": %d, \"rounds\": %d, \"plain_ms\": %.4f, \"plain_least_ms\": %.4f, ", fan.size,
           fan.receivers, rounds, plain_ms, plain_least_ms);
    printf("\"sealed_ms\": %.4f, \"sealed_least_ms\": %.4f, \"failed\": %ld, \"dropped\": %ld}\n", sealed_ms, sealed_least_ms,
           fan.failed, lost);
}
