/* Receives datagrams as fast as possible and, if given sessions, decrypts each; the baseline for an edge.
 *
 *   udp-sink PORT SECONDS [--sessions FILE] [--count N] [--core N]
 *
 * PORT     on 127.0.0.1; 0: any. SECONDS: the duration; it ends earlier when it has received N datagrams (default: no limit).
 * FILE     of sessions, see encryption.h: each datagram is decrypted with the key of its session and counted in `decrypted`.
 *
 * Two lines of JSON: {"port": ...} when it is ready; at the end received, bytes, decrypted, broken, dropped (no space in the socket),
 * seconds (from the first datagram to the last), cpu_s (CPU time in between, getrusage), per_s (received / seconds) and cpu_us (CPU
 * time per datagram). While nothing arrives it waits in poll and uses no CPU.
 */
#include <poll.h>
#include <stdio.h>

#include "encryption.h"
#include "udp.h"

#define WAIT_MS 10

typedef struct {
    int64_t received, bytes, decrypted, broken, first_ns, last_ns;
    double cpu_before_s;
} Tally;

static Batch batch;

static void add_sample(Tally *tally, int got, const Sessions *sessions) {
    for (int at = 0; at < got; at++) {
        size_t len = batch.heads[at].msg_len;
        tally->bytes += (int64_t)len;
        if (!sessions) continue;
        if (decrypt(sessions, batch.bytes[at], len) >= 0)
            tally->decrypted++;
        else
            tally->broken++;
    }
    tally->received += got;
}

static Tally receive(int fd, double seconds, int64_t most, const Sessions *sessions) {
    Tally tally = {0};
    struct pollfd watched = {fd, POLLIN, 0};
    int64_t until = now_ns() + (int64_t)(seconds * 1e9);
    while (now_ns() < until && tally.received < most) {
        double cpu_before_s = tally.received ? 0 : cpu_s();
        for (int at = 0; at < BATCH; at++) batch.heads[at].msg_hdr.msg_namelen = sizeof batch.addresses[at];
        int got = recvmmsg(fd, batch.heads, BATCH, MSG_DONTWAIT, NULL);
        if (got <= 0) {
            poll(&watched, 1, WAIT_MS);
            continue;
        }
        if (!tally.received) {
            tally.cpu_before_s = cpu_before_s;
            tally.first_ns = now_ns();
        }
        add_sample(&tally, got, sessions);
        tally.last_ns = now_ns();
    }
    return tally;
}

int main(int count, char **arguments) {
    int port = (int)argument(count, arguments, 1, 0, 65535);
    double seconds = argument(count, arguments, 2, 0, SECONDS_MAX);
    double most = number_of(count, arguments, "--count", 1e15, 1, 1e15);
    const char *path = text_of(count, arguments, "--sessions");
    Sessions sessions = {0};
    pin((long)number_of(count, arguments, "--core", -1, 0, CPU_SETSIZE - 1));
    if (path) sessions = read_sessions(path);
    int fd = open_socket(port);
    prepare(&batch);
    for (int at = 0; at < BATCH; at++) batch.heads[at].msg_hdr.msg_name = &batch.addresses[at];
    printf("{\"port\": %d}\n", port_of(fd));
    fflush(stdout);
    Tally tally = receive(fd, seconds, (int64_t)most, path ? &sessions : NULL);
    double took = 1e-9 * (double)(tally.last_ns - tally.first_ns), cpu = cpu_s() - tally.cpu_before_s;
    printf("{\"received\": %ld, \"bytes\": %ld, \"decrypted\": %ld, \"broken\": %ld, \"dropped\": %ld, ", tally.received,
           tally.bytes, tally.decrypted, tally.broken, dropped(fd));
    printf("\"seconds\": %.6f, \"cpu_s\": %.6f, \"per_s\": %.1f, \"cpu_us\": %.4f}\n", took, tally.received ? cpu : 0.0,
           took > 0 ? (double)tally.received / took : 0.0, tally.received ? 1e6 * cpu / (double)tally.received : 0.0);
}
