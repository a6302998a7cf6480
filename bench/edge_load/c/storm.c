/* Clients that connect and subscribe, some at a time; when all are subscribed it prints the time, and they stay until a line is read.
 *
 *   load storm PORT CLIENTS AT_A_TIME
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "modes.h"

#define STORM_NS_MAX 120000000000LL

enum { CONNECTING_TCP, CONNECTING_MQTT, SUBSCRIBING, SUBSCRIBED };

typedef struct {
    int fd, number, state;
    size_t got;
} Client;

static int epoll;

static void begin(Client *client, int number, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client->number = number;
    client->state = CONNECTING_TCP;
    client->fd = open_socket(number);
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
    if (connect(client->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) die("could not connect");
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = client};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event);
}

static void send_packet(Client *client, const uint8_t *packet, size_t len, int state) {
    if (send(client->fd, packet, len, MSG_NOSIGNAL) != (ssize_t)len) die("the broker closed a connection in the storm");
    client->state = state;
    client->got = 0;
}

static void send_connect(Client *client) {
    char name[32];
    uint8_t packet[128];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    snprintf(name, sizeof name, "storm-%06d", client->number);
    send_packet(client, packet, put_connect(packet, name, 1), CONNECTING_MQTT);
    epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event);
}

/* Reads the next answer until it is complete: a CONNACK has four bytes, a SUBACK five. */
static void receive_answer(Client *client) {
    char topic[32];
    uint8_t packet[128];
    size_t wanted = client->state == CONNECTING_MQTT ? 4 : 5;
    ssize_t got = recv(client->fd, packet, wanted - client->got, 0);
    if (got <= 0) die("the broker closed a connection in the storm");
    client->got += (size_t)got;
    if (client->got < wanted) return;
    if (packet[got - 1] >= 128 || (client->state == CONNECTING_MQTT && packet[got - 1])) die("a client was refused in the storm");
    if (client->state == CONNECTING_MQTT) {
        snprintf(topic, sizeof topic, "bench/idle/%06d", client->number);
        send_packet(client, packet, put_subscribe(packet, 1, topic, 0), SUBSCRIBING);
    } else {
        client->state = SUBSCRIBED;
    }
}

int run_storm(int port, int clients, int at_a_time) {
    Client *all = calloc((size_t)clients, sizeof *all);
    struct epoll_event events[256];
    int begun = 0, ready_count = 0;
    epoll = epoll_create1(0);
    int64_t started = now_ns();
    Effort effort;
    begin_effort(&effort);
    while (ready_count < clients) {
        for (; begun < clients && begun - ready_count < at_a_time; begun++) begin(&all[begun], begun, port);
        int64_t before = now_ns();
        int ready = epoll_wait(epoll, events, 256, 0);
        if (!ready) count_idle(&effort, now_ns() - before);
        for (int at = 0; at < ready; at++) {
            Client *client = events[at].data.ptr;
            if (client->state == CONNECTING_TCP)
                send_connect(client);
            else
                receive_answer(client);
            ready_count += client->state == SUBSCRIBED;
        }
        if (now_ns() - started > STORM_NS_MAX) die("the storm takes too long");
    }
    double seconds = (double)(now_ns() - started) / 1e9;
    printf("{\"seconds\": %.4f, \"busy\": %.4f}\n", seconds, busy_share(&effort));
    fflush(stdout);
    getchar(); /* they stay connected until a line is read */
    return 0;
}
