/* A vehicle that drives straight on: it reports its position, prints messages as JSON lines, and publishes lines of its input. */
#define _DEFAULT_SOURCE
#include "milepost.h"

#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define METRES_PER_DEGREE 111195.0
#define LINE_MAX_BYTES 4096
#define WRONG_USE 2

static const char usage[] =
    "usage: milepost-client HOST:PORT --key FILE --certificate FILE --ca FILE [OPTIONS]\n"
    "       milepost-client HOST:PORT --plain --id NAME [OPTIONS]\n"
    "\n"
    "Reports a moving position, prints each received message as one line of JSON, and publishes\n"
    "lines of standard input: TOPIC BODY.\n"
    "\n"
    "  --key FILE               the private key, created by: milepost trust issue ca truck-17 --role vehicle\n"
    "  --certificate FILE       the certificate of the same command\n"
    "  --ca FILE                the public key of the certificate authority, authority.pub\n"
    "  --edge-certificate FILE  the certificate of the edge (default: requested from the edge)\n"
    "  --plain --id NAME        for an edge without encryption\n"
    "  --subscribe QUERY        a query to subscribe to, such as: 'collision & i80'; up to 8 times\n"
    "  --from LAT,LON           initial position (default: 40.7608,-111.891)\n"
    "  --heading DEG            heading, clockwise from north (default: 90)\n"
    "  --speed MPS              speed in metres per second (default: 0)\n"
    "\n"
    "It runs until SIGINT or SIGTERM. Exit status: 0 stopped, 1 a file or the network failed, 2 wrong usage,\n"
    "3 the edge did not answer, 4 the edge refused the session.\n";

static struct client client;
static struct sockaddr_storage edge;
static socklen_t edge_size;
static int udp = -1;
static double from[2] = {40.7608, -111.891}, heading_deg = 90, speed_mps = 0;
static uint64_t started_ns;
static volatile sig_atomic_t is_told_to_leave = 0;

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("milepost-client: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static _Noreturn void fail(int status, const char *what, const char *which) {
    say("%s%s", what, which);
    exit(status);
}

static struct now read_clocks(void) {
    struct timespec utc, steady;
    clock_gettime(CLOCK_REALTIME, &utc);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    return (struct now){(uint64_t)utc.tv_sec * SECOND_NS + (uint64_t)utc.tv_nsec,
                        (uint64_t)steady.tv_sec * SECOND_NS + (uint64_t)steady.tv_nsec};
}

/* ---- the device ---- */

/* A datagram that cannot be sent counts as lost: reliable messages are sent again. */
static void send_datagram(struct span datagram) {
    (void)!sendto(udp, datagram.at, datagram.size, 0, (struct sockaddr *)&edge, edge_size);
}

static void locate(uint64_t utc_ns, struct report *report) {
    double metres = speed_mps * (double)(int64_t)(utc_ns - started_ns) / 1e9, angle = heading_deg * M_PI / 180;
    report->latitude = fmin(fmax(from[0] + metres * cos(angle) / METRES_PER_DEGREE, -90), 90);
    double east = metres * sin(angle) / (METRES_PER_DEGREE * fmax(cos(from[0] * M_PI / 180), 1e-6));
    report->longitude = remainder(from[1] + east, 360);
    report->heading_deg = heading_deg;
    report->speed_mps = speed_mps;
}

static void use_port(uint16_t port) {
    if (edge.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&edge)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&edge)->sin_port = htons(port);
}

/* Length of the UTF-8 sequence that begins here; 0 if it is invalid. */
static size_t character_size(struct span text) {
    uint8_t first = text.at[0];
    size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    uint32_t code = size == 1 ? first : first & (0x7fu >> size);
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0 || size > text.size)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if (text.at[i] >> 6 != 2)
            return 0;
        code = code << 6 | (text.at[i] & 0x3f);
    }
    return code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : size;
}

static void print_text(const char *name, struct span text) {
    printf("\"%s\": \"", name);
    while (text.size > 0) {
        size_t size = character_size(text);
        if (size == 0)
            fputs("\\ufffd", stdout);
        else if (text.at[0] < 0x20 || text.at[0] == 0x7f)
            printf("\\u%04x", text.at[0]);
        else
            printf("%s%.*s", text.at[0] == '"' || text.at[0] == '\\' ? "\\" : "", (int)size, (const char *)text.at);
        text.at += size ? size : 1;
        text.size -= size ? size : 1;
    }
    putchar('"');
}

static void show(const struct message *message, enum verdict verdict) {
    putchar('{');
    print_text("topic", message->topic);
    fputs(", ", stdout);
    print_text("source", message->source);
    printf(", \"id\": \"%llu\", ", (unsigned long long)message->id);
    print_text("body", message->body);
    if (verdict != UNSIGNED)
        printf(", \"verified\": %s", verdict == VERIFIED ? "true" : "false");
    puts("}");
    fflush(stdout);
}

/* ---- files and options ---- */

/* The bytes between BEGIN and END, encoded as base64 (docs/reference/wire.md, "Files"). */
static size_t read_file(const char *path, const char *kind, uint8_t *to, size_t size) {
    char line[256], begin[80], end[80], text[2 * CERTIFICATE_MAX] = "";
    uint8_t decoded[2 * CERTIFICATE_MAX];
    bool is_inside = false, is_whole = false;
    FILE *file = fopen(path, "r");
    if (!file)
        fail(1, "cannot read the file ", path);
    snprintf(begin, sizeof begin, "-----BEGIN MILEPOST %s-----", kind);
    snprintf(end, sizeof end, "-----END MILEPOST %s-----", kind);
    while (!is_whole && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (strcmp(line, end) == 0)
            is_whole = is_inside;
        else if (is_inside && strlen(text) + strlen(line) < sizeof text)
            strcat(text, line);
        else if (strcmp(line, begin) == 0)
            is_inside = true;
    }
    fclose(file);
    int blocks = EVP_DecodeBlock(decoded, (const uint8_t *)text, (int)strlen(text)), padding = 0;
    for (size_t last = strlen(text); last > 0 && text[last - 1] == '='; last--)
        padding++;
    if (!is_whole || blocks <= padding || (size_t)(blocks - padding) > size)
        fail(1, "this file has another content than expected; print it with: milepost trust show ", path);
    memcpy(to, decoded, (size_t)(blocks - padding));
    return (size_t)(blocks - padding);
}

static void resolve(const char *address) {
    char host[256];
    const char *port = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    size_t size = port ? (size_t)(port - address) : 0;
    if (size == 0 || size >= sizeof host)
        fail(WRONG_USE, "give the edge as HOST:PORT, not ", address);
    bool is_bracketed = address[0] == '[' && address[size - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(is_bracketed ? size - 2 : size), address + is_bracketed);
    if (getaddrinfo(host, port + 1, &hints, &found) != 0)
        fail(1, "no such host or port: ", address);
    memcpy(&edge, found->ai_addr, found->ai_addrlen);
    edge_size = found->ai_addrlen;
    freeaddrinfo(found);
    if ((udp = socket(edge.ss_family, SOCK_DGRAM, 0)) < 0)
        fail(1, "cannot open a UDP socket for ", address);
}

static void use_certificate(const char *path, uint64_t now) {
    struct certificate own;
    client.certificate_size = read_file(path, "CERTIFICATE", client.certificate, sizeof client.certificate);
    if (!read_certificate((struct span){client.certificate, client.certificate_size}, client.authority, now, &own))
        fail(1, "this certificate is not signed by the CA, or has expired (milepost trust issue): ", path);
    uint8_t public[KEY];
    if (!public_key(client.own, public) || !is_equal(own.key, (struct span){public, KEY}))
        fail(1, "this certificate is for another key than the one given: ", path);
    memcpy(client.id, own.id.at, own.id.size);
}

static void use_edge_certificate(const char *path, uint64_t now) {
    uint8_t bytes[CERTIFICATE_MAX];
    struct certificate found;
    size_t size = read_file(path, "CERTIFICATE", bytes, sizeof bytes);
    if (!read_certificate((struct span){bytes, size}, client.authority, now, &found) || !is_equal(found.role, span_of("edge")))
        fail(1, "this certificate is not signed by the CA for an edge, or has expired: ", path);
    memcpy(client.edge, found.key.at, KEY);
    client.knows_edge = true;
}

static double number_of(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(value))
        fail(WRONG_USE, "not a number: ", text);
    return value;
}

static void set_start(char *text) {
    char *comma = strchr(text, ',');
    if (!comma)
        fail(WRONG_USE, "give the position as LAT,LON, not ", text);
    *comma = 0;
    from[0] = number_of(text);
    from[1] = number_of(comma + 1);
    if (fabs(from[0]) > 90 || fabs(from[1]) > 180)
        fail(WRONG_USE, "latitude is -90 to 90, longitude -180 to 180; are they swapped? ", text);
}

static void read_options(int count, char **words, uint64_t now) {
    static const struct option known[] = {
        {"key", 1, 0, 'k'}, {"certificate", 1, 0, 'c'}, {"ca", 1, 0, 'a'}, {"edge-certificate", 1, 0, 'e'},
        {"plain", 0, 0, 'p'}, {"id", 1, 0, 'i'}, {"subscribe", 1, 0, 's'}, {"from", 1, 0, 'f'},
        {"heading", 1, 0, 'd'}, {"speed", 1, 0, 'v'}, {"help", 0, 0, 'h'}, {0}};
    const char *given[128] = {0};
    for (int option; (option = getopt_long(count, words, "h", known, NULL)) != -1;) {
        if (option == 'h' || option == '?') {
            fputs(usage, option == 'h' ? stdout : stderr);
            exit(option == 'h' ? 0 : WRONG_USE);
        }
        if (option == 's' && !client_subscribe(&client, optarg))
            fail(WRONG_USE, "too many subscriptions, or one that is too long: ", optarg);
        given[option] = optarg ? optarg : "";
        if (option == 'f')
            set_start(optarg);
    }
    client.is_plain = given['p'] != NULL;
    bool is_enough = client.is_plain ? given['i'] && strlen(given['i']) <= ID_MAX : given['k'] && given['c'] && given['a'];
    if (optind != count - 1 || !is_enough) {
        fputs(usage, stderr);
        exit(WRONG_USE);
    }
    resolve(words[optind]);
    heading_deg = given['d'] ? fmod(fmod(number_of(given['d']), 360) + 360, 360) : heading_deg;
    speed_mps = given['v'] ? number_of(given['v']) : speed_mps;
    if (client.is_plain) {
        strcpy(client.id, given['i']);
        return;
    }
    if (read_file(given['k'], "PRIVATE KEY", client.own, KEY) != KEY)
        fail(1, "not an endpoint's private key: ", given['k']);
    if (read_file(given['a'], "AUTHORITY PUBLIC KEY", client.authority, KEY) != KEY)
        fail(1, "not the public key of a certificate authority: ", given['a']);
    use_certificate(given['c'], now);
    if (given['e'])
        use_edge_certificate(given['e'], now);
}

/* ---- the loop ---- */

static void publish_line(char *line, size_t size, struct now now) {
    char *blank = memchr(line, ' ', size);
    size_t topic = blank ? (size_t)(blank - line) : size;
    struct span body = {(uint8_t *)line + topic + (blank != NULL), size - topic - (blank != NULL)};
    if (topic > 0 && !client_publish(&client, (struct span){(uint8_t *)line, topic}, body, now))
        say("a line is too long for one datagram and was dropped");
}

/* Publish whole lines while there is room for them; false at the end of the input. */
static bool read_lines(bool is_ready) {
    static char text[LINE_MAX_BYTES];
    static size_t used;
    static bool is_over;
    if (is_ready && used < sizeof text) {
        ssize_t more = read(STDIN_FILENO, text + used, sizeof text - used);
        is_over = more <= 0;
        used += more > 0 ? (size_t)more : 0;
    }
    for (char *end; client_has_room(&client) && (end = memchr(text, '\n', used));) {
        publish_line(text, (size_t)(end - text), read_clocks());
        used -= (size_t)(end - text) + 1;
        memmove(text, end + 1, used);
    }
    if (used == sizeof text && !memchr(text, '\n', used)) {
        say("a line is too long and was dropped");
        used = 0;
    }
    return !is_over || memchr(text, '\n', used);
}

static void leave(int number) {
    (void)number;
    is_told_to_leave = 1;
}

static void run(void) {
    static uint8_t bytes[OUTER_MAX];
    bool reads = true;
    while (client.state != ENDED && !is_told_to_leave) {
        struct now now = read_clocks();
        uint64_t next = client_tick(&client, now);
        uint64_t wait_ms = next > now.steady_ns ? (next - now.steady_ns) / 1000000 + 1 : 0;
        bool has_room = client_has_room(&client);
        struct pollfd ready[2] = {{udp, POLLIN, 0}, {reads && has_room ? STDIN_FILENO : -1, POLLIN, 0}};
        if (client.state == ENDED || poll(ready, 2, wait_ms < 1000 ? (int)wait_ms : 1000) < 0)
            continue;
        ssize_t size = ready[0].revents ? recv(udp, bytes, sizeof bytes, MSG_DONTWAIT) : 0;
        if (size > 0)
            client_receive(&client, (struct span){bytes, (size_t)size}, read_clocks());
        if (reads && has_room)
            reads = read_lines(ready[1].revents != 0);
    }
}

int main(int count, char **words) {
    struct sigaction on_signal = {.sa_handler = leave};
    client.device = (struct device){send_datagram, locate, show, say, use_port};
    started_ns = read_clocks().utc_ns;
    read_options(count, words, started_ns);
    sigaction(SIGINT, &on_signal, NULL);
    sigaction(SIGTERM, &on_signal, NULL);
    if (!client_start(&client, read_clocks()))
        fail(1, "libcrypto could not create keys", "");
    run();
    if (client.state != ENDED)
        client_leave(&client);
    if (client.ending == NO_ANSWER)
        say("no answer for 30 s: check the address, that the edge has a UDP listener, that its certificate and yours are of one "
            "CA, and the clock");
    return client.ending;
}
