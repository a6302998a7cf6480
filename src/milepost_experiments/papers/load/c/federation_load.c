#include "hub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

void publish(Link *link, const char *topic, int qos, const Stamp *said) {
    size_t id_at;
    uint8_t *to = room(link, PAYLOAD_LEN + 128);
    size_t at = put_publish(to, topic, qos, PAYLOAD_LEN, &id_at);
    if (qos) {
        put_u16(to + id_at, link->next_id);
        link->next_id = link->next_id % 65535 + 1;
        link->unacked++;
    }
    memset(to + at, 'x', PAYLOAD_LEN);
    memcpy(to + at, said, sizeof *said);
    queued(link, at + PAYLOAD_LEN);
    if (flush(link) < 0) die("the broker hung up on a publisher");
    if (backlog(link) > BACKLOG_MAX || link->unacked > 60000) die("the broker takes no more");
}

int wait_until(int epoll, struct epoll_event *events, int room_for, int64_t until) {
    int64_t left = until - now_ns();
    struct timespec limit = {0, 0};
    if (left > 0) limit = (struct timespec){left / 1000000000LL, left % 1000000000LL};
    int ready = epoll_pwait2(epoll, events, room_for, &limit, NULL);
    if (ready < 0 && errno != EINTR) die("epoll fails");
    return ready < 0 ? 0 : ready;
}

void begin_link(Link *link, int epoll, int number, int port, const char *client_id) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(link, 0, sizeof *link);
    link->number = number;
    link->next_id = 1;
    link->epoll = epoll;
    link->fd = open_socket(number);
    fcntl(link->fd, F_SETFL, O_NONBLOCK);
    if (connect(link->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) die("could not connect");
    queued(link, put_connect(room(link, PACKET_MAX), client_id, 0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = link};
    epoll_ctl(epoll, EPOLL_CTL_ADD, link->fd, &event);
    link->waits_to_write = 1;
}

int64_t process_cpu_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

double core_share(int64_t cpu_before, int64_t wall_before) {
    return (double)(process_cpu_ns() - cpu_before) / (double)(now_ns() - wall_before + 1);
}

void print_times(const char *name, const Times *times) {
    printf("\"%s\": {\"count\": %ld, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}, ", name, times->times.total,
           mean_us(times), percentile_us(&times->times, 0.5), percentile_us(&times->times, 0.99), (double)times->times.max / 1e3);
}

int main(int count, char **words) {
    if (count >= 6 && !strcmp(words[1], "spread"))
        return run_spread(atoi(words[2]), atoi(words[3]), atoi(words[4]), atoi(words[5]));
    if (count >= 9 && !strcmp(words[1], "roam")) return run_roam(count, words);
    die("say spread or roam, and its arguments");
}
