#include "federation_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

void publish(Connection *connection, const char *topic, int qos, const Stamp *stamp) {
    size_t id_at;
    uint8_t *to = reserve(connection, PAYLOAD_LEN + 128);
    size_t at = put_publish(to, topic, qos, PAYLOAD_LEN, &id_at);
    if (qos) {
        put_u16(to + id_at, connection->next_id);
        connection->next_id = connection->next_id % 65535 + 1;
        connection->unacked++;
    }
    memset(to + at, 'x', PAYLOAD_LEN);
    memcpy(to + at, stamp, sizeof *stamp);
    advance_output(connection, at + PAYLOAD_LEN);
    if (flush(connection) < 0) die("the broker closed the connection of a publisher");
    if (backlog(connection) > BACKLOG_MAX || connection->unacked > 60000) die("the broker is overloaded");
}

int wait_until(int epoll, struct epoll_event *events, int capacity, int64_t until) {
    int64_t left = until - now_ns();
    struct timespec limit = {0, 0};
    if (left > 0) limit = (struct timespec){left / 1000000000LL, left % 1000000000LL};
    int ready = epoll_pwait2(epoll, events, capacity, &limit, NULL);
    if (ready < 0 && errno != EINTR) die("epoll fails");
    return ready < 0 ? 0 : ready;
}

void begin_connection(Connection *connection, int epoll, int number, int port, const char *client_id) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(connection, 0, sizeof *connection);
    connection->number = number;
    connection->next_id = 1;
    connection->epoll = epoll;
    connection->fd = open_socket(number);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    if (connect(connection->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) die("could not connect");
    advance_output(connection, put_connect(reserve(connection, PACKET_MAX), client_id, 0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = connection};
    epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event);
    connection->waits_to_write = 1;
}

int64_t process_cpu_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

double core_share(int64_t cpu_before, int64_t wall_before) {
    return (double)(process_cpu_ns() - cpu_before) / (double)(now_ns() - wall_before + 1);
}

void print_times(const char *name, const LatencyStatistics *times) {
    printf("\"%s\": {\"count\": %ld, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}, ", name, times->times.total,
           mean_us(times), percentile_us(&times->times, 0.5), percentile_us(&times->times, 0.99), (double)times->times.max / 1e3);
}

int main(int count, char **arguments) {
    if (count >= 6 && !strcmp(arguments[1], "latency"))
        return run_latency(atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]), atoi(arguments[5]));
    if (count >= 9 && !strcmp(arguments[1], "roaming")) return run_roaming(count, arguments);
    die("expected a mode, latency or roaming, and its arguments");
}
