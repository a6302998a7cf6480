#include "udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define DROPS_AT 8 /* SK_MEMINFO_DROPS */
#define MEMINFO_COUNT 9

void die(const char *what) {
    fprintf(stderr, "load: %s (%s)\n", what, strerror(errno));
    exit(2);
}

void check(int is_good, const char *what) {
    if (!is_good) die(what);
}

static int64_t ns_of(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

int64_t now_ns(void) { return ns_of(CLOCK_MONOTONIC); }
int64_t wall_ns(void) { return ns_of(CLOCK_REALTIME); }

double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void pin(long core) {
    prctl(PR_SET_TIMERSLACK, 1000UL);
    if (core < 0) return;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET((int)core, &cores);
    check(sched_setaffinity(0, sizeof cores, &cores) == 0, "no such core");
}

void sleep_us(long us) {
    struct timespec pause = {0, us * 1000};
    nanosleep(&pause, NULL);
}

static double bounded(const char *text, double least, double most) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    check(end != text && !*end && value >= least && value <= most, text);
    return value;
}

const char *text_of(int count, char **arguments, const char *name) {
    for (int at = 1; at + 1 < count; at++)
        if (!strcmp(arguments[at], name)) return arguments[at + 1];
    return NULL;
}

double number_of(int count, char **arguments, const char *name, double fallback, double least, double most) {
    const char *text = text_of(count, arguments, name);
    return text ? bounded(text, least, most) : fallback;
}

double argument(int count, char **arguments, int at, double least, double most) {
    check(at < count, "an argument is missing: see the comment at the top of the program");
    return bounded(arguments[at], least, most);
}

struct sockaddr_in loopback(int port) {
    struct in_addr here = {htonl(INADDR_LOOPBACK)};
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = here};
}

int open_socket(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), size = BUFFER_BYTES;
    check(fd >= 0, "no socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    struct sockaddr_in at = loopback(port);
    check(bind(fd, (struct sockaddr *)&at, sizeof at) == 0, "the port is in use");
    return fd;
}

int port_of(int fd) {
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    check(getsockname(fd, (struct sockaddr *)&at, &size) == 0, "no address");
    return ntohs(at.sin_port);
}

void prepare(Batch *batch) {
    memset(batch->heads, 0, sizeof batch->heads);
    for (int at = 0; at < BATCH; at++) {
        batch->pieces[at] = (struct iovec){batch->bytes[at], DATAGRAM_MAX};
        batch->heads[at].msg_hdr.msg_iov = &batch->pieces[at];
        batch->heads[at].msg_hdr.msg_iovlen = 1;
    }
}

int64_t dropped(int fd) {
    uint32_t info[MEMINFO_COUNT] = {0};
    socklen_t size = sizeof info;
    getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size);
    return info[DROPS_AT];
}
