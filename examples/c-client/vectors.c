/* Checks this client against tests/vectors/sealed.json, flattened by flatten.py: every byte it would send, everything it must
 * accept, and everything it must refuse. */
#define _DEFAULT_SOURCE
#include "milepost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 600
#define TRUCK "keys/truck "

static char *lines[LINES_MAX];
static int line_count, checked, failed;

static void check(const char *claim, bool holds) {
    checked++;
    failed += !holds;
    if (!holds)
        printf("FAILED: %s\n", claim);
}

static const char *text_of(const char *path) {
    for (int i = 0; i < line_count; i++)
        if (strncmp(lines[i], path, strlen(path)) == 0 && lines[i][strlen(path)] == '\t')
            return lines[i] + strlen(path) + 1;
    printf("FAILED: the vectors have no %s\n", path);
    exit(1);
}

/* The bytes of a hexadecimal value; they are never freed. */
static struct span bytes_of(const char *path) {
    static uint8_t pool[100000];
    static size_t used;
    const char *text = text_of(path);
    size_t size = strlen(text) / 2;
    uint8_t *bytes = pool + used;
    if (size > sizeof pool - used)
        exit(1);
    used += size;
    for (size_t i = 0; i < size; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        bytes[i] = (uint8_t)byte;
    }
    return (struct span){bytes, size};
}

static uint64_t number_of(const char *path) {
    return strtoull(text_of(path), NULL, 10);
}

static struct span written(const struct out *out) {
    return (struct span){out->at, out->is_full ? 0 : out->used};
}

/* ---- what is sent ---- */

static struct report truck_report(uint64_t seen_at) {
    return (struct report){span_of("truck-7"), 40.7608, -111.891, 90, 25, seen_at};
}

static void check_init(struct handshake *handshake, struct out *init) {
    uint8_t plain_bytes[256], payload_bytes[512];
    struct out plain = {plain_bytes, sizeof plain_bytes, 0, false}, payload = {payload_bytes, sizeof payload_bytes, 0, false};
    struct report report = truck_report(number_of("now"));
    struct span certificate = bytes_of("certificates/truck/hex");
    write_init(&plain, &report, 0);
    put_big(&payload, number_of("now"), 8);
    put_big(&payload, certificate.size, 2);
    put(&payload, certificate);
    put(&payload, written(&plain));
    check("the payload of INIT", is_equal(written(&payload), bytes_of("datagrams/INIT/payload")));
    memcpy(handshake->own, bytes_of(TRUCK "static/private").at, KEY);
    memcpy(handshake->ephemeral, bytes_of(TRUCK "ephemeral/private").at, KEY);
    memcpy(handshake->edge, bytes_of("keys/edge static/public").at, KEY);
    put_big(init, 1, 1);
    check("noise message 1 is made", write_first(handshake, written(&payload), init));
    check("noise message 1", is_equal((struct span){init->at + 1, init->used - 1}, bytes_of("handshake/message_1")));
    write_macs(handshake->edge, NULL, init);
    check("INIT", is_equal(written(init), bytes_of("datagrams/INIT/hex")));
}

static void check_cookie(const struct handshake *handshake, struct out *init) {
    uint8_t cookie[MAC];
    check("COOKIE opens", open_cookie(handshake->edge, written(init), bytes_of("datagrams/COOKIE/hex"), cookie));
    check("the cookie", is_equal((struct span){cookie, MAC}, bytes_of("datagrams/COOKIE/cookie")));
    init->used -= 2 * MAC;
    write_macs(handshake->edge, cookie, init);
    check("INIT with a cookie", is_equal(written(init), bytes_of("datagrams/INIT with a cookie/hex")));
    struct span changed = bytes_of("refused/COOKIE, one bit changed/hex");
    check("a changed COOKIE is refused", !open_cookie(handshake->edge, written(init), changed, cookie));
}

static void check_ack(struct handshake *handshake, struct keys *keys) {
    uint8_t bytes[512];
    struct out plain = {bytes, sizeof bytes, 0, false};
    struct datagram datagram;
    struct acknowledge acknowledge;
    check("a changed ACK is refused", !read_second(handshake, bytes_of("refused/ACK, one bit changed/hex"), &plain, keys));
    plain.used = 0;
    check("ACK opens, after a changed one too", read_second(handshake, bytes_of("datagrams/ACK/hex"), &plain, keys));
    check("the payload of ACK", is_equal(written(&plain), bytes_of("datagrams/ACK/payload")));
    check("the handshake's hash", is_equal((struct span){handshake->hash, KEY}, bytes_of("handshake/handshake_hash")));
    check("ACKNOWLEDGE is read", read_datagram(written(&plain), &datagram) && datagram.content == ACKNOWLEDGE &&
                                     read_acknowledge(datagram.inner, &acknowledge));
    check("the token", datagram.token == number_of("token"));
    check("reset", is_equal(acknowledge.reset, bytes_of("datagrams/ACK/reset")));
    keys->token = datagram.token;
}

static void check_reports(struct keys *keys) {
    static const char *const names[] = {"datagrams/DATA, endpoint to edge, counter 0",
                                        "datagrams/DATA, endpoint to edge, counter 1"};
    for (int i = 0; i < 2; i++) {
        char path[100];
        uint8_t plain_bytes[256], bytes[512];
        struct out plain = {plain_bytes, sizeof plain_bytes, 0, false}, sealed = {bytes, sizeof bytes, 0, false};
        struct report report = truck_report(number_of("now") + (uint64_t)i * SECOND_NS);
        write_report(&plain, keys->token, &report);
        snprintf(path, sizeof path, "%s/plain", names[i]);
        check("a report", is_equal(written(&plain), bytes_of(path)));
        snprintf(path, sizeof path, "%s/hex", names[i]);
        check("DATA is sealed", seal_data(keys, written(&plain), &sealed));
        check("DATA with a report", is_equal(written(&sealed), bytes_of(path)));
    }
}

/* ---- what is heard ---- */

static bool is_believed(struct keys *keys, const char *path, struct datagram *datagram) {
    static uint8_t bytes[DATAGRAM_MAX];
    struct out plain = {bytes, sizeof bytes, 0, false};
    return open_data(keys, bytes_of(path), &plain) && read_datagram(written(&plain), datagram);
}

static void check_data(struct keys *keys, const uint8_t *authority, uint64_t now) {
    struct datagram datagram;
    struct message message;
    bool is_heartbeat = is_believed(keys, "datagrams/DATA, edge to endpoint, counter 0/hex", &datagram);
    check("a heartbeat", is_heartbeat && datagram.content == HEARTBEAT);
    check("a datagram is taken once", !is_believed(keys, "refused/DATA, counter 0 again/hex", &datagram));
    check("an alert", is_believed(keys, "datagrams/DATA, edge to endpoint, counter 1/hex", &datagram) &&
                          datagram.content == PUBLISH && read_publish(datagram.inner, &message));
    check("what is signed", is_equal(message.signed_part, bytes_of("signed_message/signed")));
    check("the alert is the edge's", is_verified(&message, authority, now));
    struct span stranger = bytes_of("keys/another authority/public");
    check("but not with another authority", !is_verified(&message, stranger.at, now));
    check("a changed alert opens", is_believed(keys, "refused/DATA, with a signed message that was changed/hex", &datagram) &&
                                       read_publish(datagram.inner, &message));
    check("and is a forgery", !is_verified(&message, authority, now));
}

/* A topic appended after the signature changes what is read, but not what was signed. */
static void check_addition(bool is_added) {
    uint8_t bytes[1024];
    struct out out = {bytes, sizeof bytes, 0, false};
    struct message message;
    size_t begun = begin_nested(&out, 1);
    put(&out, bytes_of("signed_message/signed"));
    put_bytes(&out, 13, bytes_of("signed_message/signature"));
    put_bytes(&out, 14, bytes_of("certificates/edge/hex"));
    if (is_added)
        put_bytes(&out, 3, span_of("forged"));
    end_nested(&out, begun);
    check("a message is refused if more follows its signature, and only then", read_publish(written(&out), &message) != is_added);
}

static void check_window(void) {
    static const struct { uint64_t counter; bool is_new; } steps[] = {
        {300, true}, {300, false}, {45, true}, {44, false}, {45, false}, {299, true}, {301, true}, {45, false}, {46, true},
        {700, true}, {445, true}, {444, false}, {955, true}, {956, true}, {700, false}, {701, true}, {701, false}};
    struct window window = {0};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        bool is_taken = is_new(&window, steps[i].counter);
        check("each counter once, none 256 or more behind", is_taken == steps[i].is_new);
        if (is_taken)
            mark_taken(&window, steps[i].counter);
    }
}

static void check_finding(const uint8_t *authority, uint64_t now) {
    uint8_t bytes[ASK_SIZE];
    struct out ask = {bytes, sizeof bytes, 0, false};
    struct span asked = bytes_of("datagrams/ASK/hex"), here = bytes_of("datagrams/HERE/hex");
    struct span changed = bytes_of("refused/HERE, one bit changed/hex");
    struct certificate edge;
    uint16_t port;
    write_ask(asked.at + 1, 40.7608, -111.891, &ask);
    check("ASK", is_equal(written(&ask), asked));
    check("HERE is believed", read_here(here, asked.at + 1, authority, now, &port, &edge));
    check("the port", port == number_of("datagrams/HERE/port"));
    check("the edge's key", is_equal(edge.key, bytes_of("keys/edge static/public")));
    check("HERE for another question is refused", !read_here(here, asked.at, authority, now, &port, &edge));
    check("a changed HERE is refused", !read_here(changed, changed.at + 1, authority, now, &port, &edge));
}

static void check_certificates(const uint8_t *authority, uint64_t now) {
    struct span truck = bytes_of("certificates/truck/hex");
    struct certificate own;
    uint8_t public[KEY];
    check("a certificate", read_certificate(truck, authority, now, &own) && is_equal(own.id, span_of("truck-7")));
    check("its key", public_key(bytes_of(TRUCK "static/private").at, public) && is_equal(own.key, (struct span){public, KEY}));
    check("not of another authority", !read_certificate(truck, bytes_of("keys/another authority/public").at, now, &own));
    check("not when it is over", !read_certificate(truck, authority, number_of("certificates/truck/not_after") + 1, &own));
    check("not before it begins", !read_certificate(truck, authority, number_of("certificates/truck/not_before") - 1, &own));
}

static void check_reset(struct keys *keys) {
    struct span known = bytes_of("datagrams/ACK/reset");
    check("RESET", is_reset(bytes_of("datagrams/RESET/hex"), keys->token, known.at));
    check("RESET of another session is refused", !is_reset(bytes_of("datagrams/RESET/hex"), keys->token + 1, known.at));
    check("a changed RESET is refused", !is_reset(bytes_of("refused/RESET, one bit changed/hex"), keys->token, known.at));
}

static void read_lines(const char *path) {
    static char line[20000];
    FILE *file = fopen(path, "r");
    while (file && line_count < LINES_MAX && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        lines[line_count++] = strdup(line);
    }
    if (!file || !feof(file)) {
        printf("cannot read all of %s\n", path);
        exit(1);
    }
    fclose(file);
}

int main(int count, char **words) {
    static struct handshake handshake;
    static uint8_t bytes[INIT_MAX];
    struct out init = {bytes, sizeof bytes, 0, false};
    static struct keys keys;
    if (count != 2) {
        puts("usage: check-vectors FILE, made with: python3 flatten.py sealed.json");
        return 2;
    }
    read_lines(words[1]);
    keys = (struct keys){.send = EVP_CIPHER_CTX_new(), .receive = EVP_CIPHER_CTX_new()};
    const uint8_t *authority = bytes_of("keys/authority/public").at;
    uint64_t now = number_of("now");
    check_init(&handshake, &init);
    check_cookie(&handshake, &init);
    check_ack(&handshake, &keys);
    check_reports(&keys);
    check_data(&keys, authority, now);
    check_addition(false);
    check_addition(true);
    check_window();
    check_reset(&keys);
    check_finding(authority, now);
    check_certificates(authority, now);
    printf("%d checks, %d failed\n", checked, failed);
    return failed > 0;
}
