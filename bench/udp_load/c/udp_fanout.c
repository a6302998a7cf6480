/* One datagram to many receivers: the time from the first to the last passed to the kernel, plain and encrypted for each.
 *
 *   udp-fanout SIZE RECEIVERS [--rounds N] [--core N]
 *
 * SIZE        bytes of the plain datagram. RECEIVERS: their number; they share a few sockets on 127.0.0.1 that the program opens itself
 *             and empties between the rounds, outside the measured time.
 * --rounds    of each kind (default 21), fewer if they take more than 30 s; the median and the minimum are printed.
 *
 * Plain: all receive the same bytes. Encrypted: DATA as in encryption.h, with a key for each receiver, encrypted batch by batch.
 *
 * One line of JSON: size, receivers, rounds, plain_ms, plain_least_ms, encrypted_ms, encrypted_least_ms, failed, dropped (no space in
 * a receiver's socket: should be 0, else the kernel had less to do).
 */
#include <stdio.h>
#include <stdlib.h>

#include "encryption.h"
#include "udp.h"

#define RECEIVERS_MAX 100000
#define ROUNDS_MAX 1001
#define MEASURE_NS_MAX 30000000000LL
#define WAITING_BYTES_MAX (BUFFER_BYTES / 2) /* in one receiver's socket; the kernel counts twice the requested space */
#define OVERHEAD_BYTES 1024                  /* kernel overhead per datagram, at most */

typedef struct {
    int fd, receivers, sink_count, sinks[SOCKETS_MAX];
    struct sockaddr_in *addresses;
    Session *sessions;
    uint8_t plain[DATAGRAM_MAX];
    size_t size;
    int64_t failed;
} Fanout;

static Batch batch;

static void open_sinks(Fanout *fanout) {
    int each = WAITING_BYTES_MAX / (int)(2 * fanout->size + OVERHEAD_BYTES);
    fanout->sink_count = 1 + fanout->receivers / each;
    check(fanout->sink_count <= SOCKETS_MAX, "too many receivers for this size");
    for (int at = 0; at < fanout->sink_count; at++) fanout->sinks[at] = open_socket(0);
    for (int at = 0; at < fanout->receivers; at++) fanout->addresses[at] = loopback(port_of(fanout->sinks[at % fanout->sink_count]));
}

static void make_keys(Fanout *fanout) {
    for (int at = 0; at < fanout->receivers; at++) {
        fanout->sessions[at].token = (uint64_t)at + 1;
        for (int byte = 0; byte < KEY_BYTES; byte++) fanout->sessions[at].key[byte] = (uint8_t)(at >> (byte % 4 * 8));
    }
}

static void fill(Fanout *fanout, int from, int wanted, int is_encrypted) {
    for (int at = 0; at < wanted; at++) {
        batch.heads[at].msg_hdr.msg_name = &fanout->addresses[from + at];
        batch.heads[at].msg_hdr.msg_namelen = sizeof *fanout->addresses;
        batch.pieces[at] = (struct iovec){is_encrypted ? batch.bytes[at] : fanout->plain, fanout->size};
        if (is_encrypted) batch.pieces[at].iov_len = encrypt(&fanout->sessions[from + at], fanout->plain, fanout->size, batch.bytes[at]);
    }
}

/* Nanoseconds from before the first to after the last. */
static int64_t send_round(Fanout *fanout, int is_encrypted) {
    int64_t begun = now_ns();
    for (int from = 0; from < fanout->receivers; from += BATCH) {
        int wanted = fanout->receivers - from < BATCH ? fanout->receivers - from : BATCH;
        fill(fanout, from, wanted, is_encrypted);
        for (int done = 0; done < wanted;) {
            int taken = sendmmsg(fanout->fd, batch.heads + done, (unsigned)(wanted - done), MSG_NOSIGNAL);
            fanout->failed += taken <= 0;
            done += taken > 0 ? taken : 1;
        }
    }
    return now_ns() - begun;
}

static void empty_sinks(const Fanout *fanout) {
    uint8_t bytes[1];
    for (int at = 0; at < fanout->sink_count; at++)
        for (int more = 0; more <= fanout->receivers && recv(fanout->sinks[at], bytes, sizeof bytes, MSG_TRUNC) >= 0;) more++;
}

static int by_size(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Returns the number of rounds. */
static int measure(Fanout *fanout, int most, int is_encrypted, double *median_ms, double *least_ms) {
    static int64_t taken[ROUNDS_MAX];
    int rounds = 0;
    send_round(fanout, is_encrypted); /* keys are set up and the CPU is warm */
    empty_sinks(fanout);
    int64_t until = now_ns() + MEASURE_NS_MAX;
    do {
        taken[rounds++] = send_round(fanout, is_encrypted);
        empty_sinks(fanout);
    } while (rounds < most && now_ns() < until);
    qsort(taken, (size_t)rounds, sizeof *taken, by_size);
    *median_ms = 1e-6 * (double)taken[rounds / 2];
    *least_ms = 1e-6 * (double)taken[0];
    return rounds;
}

int main(int count, char **arguments) {
    static Fanout fanout;
    double plain_ms, plain_least_ms, encrypted_ms, encrypted_least_ms;
    int64_t lost = 0;
    fanout.size = (size_t)argument(count, arguments, 1, 1, DATAGRAM_MAX - DATA_HEAD - TAG_BYTES);
    fanout.receivers = (int)argument(count, arguments, 2, 1, RECEIVERS_MAX);
    int most = (int)number_of(count, arguments, "--rounds", 21, 1, ROUNDS_MAX);
    pin((long)number_of(count, arguments, "--core", -1, 0, CPU_SETSIZE - 1));
    fanout.addresses = calloc((size_t)fanout.receivers, sizeof *fanout.addresses);
    fanout.sessions = calloc((size_t)fanout.receivers, sizeof *fanout.sessions);
    check(fanout.addresses && fanout.sessions, "no memory");
    open_sinks(&fanout);
    make_keys(&fanout);
    fanout.fd = open_socket(0);
    prepare(&batch);
    measure(&fanout, most, 0, &plain_ms, &plain_least_ms);
    int rounds = measure(&fanout, most, 1, &encrypted_ms, &encrypted_least_ms);
    for (int at = 0; at < fanout.sink_count; at++) lost += dropped(fanout.sinks[at]);
    printf("{\"size\": %zu, \"receivers\": %d, \"rounds\": %d, \"plain_ms\": %.4f, \"plain_least_ms\": %.4f, ", fanout.size,
           fanout.receivers, rounds, plain_ms, plain_least_ms);
    printf("\"encrypted_ms\": %.4f, \"encrypted_least_ms\": %.4f, \"failed\": %ld, \"dropped\": %ld}\n", encrypted_ms, encrypted_least_ms,
           fanout.failed, lost);
}
