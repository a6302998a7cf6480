/* Checks client.c and outbox.c in virtual time: hours pass in a moment, and nothing is sent.
 *
 * The edge does not encrypt here: the session logic is the same, and vectors.c checks the encryption. */
#include "milepost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_NS SECOND_NS
#define KEYS_NS (4000 * SECOND_NS)

static struct client client;
static struct now now;
static struct datagram last;
static uint64_t last_former;
static int sent[RECEIVED + 1], shown, checked, failed;
static uint8_t last_bytes[DATAGRAM_MAX];

static void check(const char *claim, bool holds) {
    checked++;
    failed += !holds;
    if (!holds)
        printf("FAILED: %s\n", claim);
}

/* ---- the device ---- */

static void note_sent(struct span datagram) {
    struct field field;
    memcpy(last_bytes, datagram.at, datagram.size);
    if (!read_datagram((struct span){last_bytes, datagram.size}, &last))
        return check("only datagrams are sent", false);
    sent[last.content]++;
    if (last.content != INIT)
        return;
    last_former = 0;
    for (struct in in = {last.inner, false}; next_field(&in, &field);)
        if (field.key == FIELD(2, FIXED64))
            last_former = field.value;
}

static void stand_still(uint64_t utc_ns, struct report *report) {
    (void)utc_ns;
    report->latitude = report->longitude = 1;
}

static void count_shown(const struct message *message, enum verdict verdict) {
    shown += message->body.size > 0 && verdict == UNSIGNED;
}

static void be_quiet(const char *format, ...) {
    (void)format;
}

static void ignore_port(uint16_t port) {
    (void)port;
}

/* ---- the edge ---- */

static void hear(const struct out *out) {
    client_receive(&client, (struct span){out->at, out->used}, now);
}

static void hear_content(uint64_t token, enum content content, struct span inner) {
    uint8_t bytes[256];
    struct out out = {bytes, sizeof bytes, 0, false};
    put_uint(&out, 1, 1);
    put_fixed(&out, 2, token);
    put_bytes(&out, (int)content, inner);
    hear(&out);
}

static void acknowledge(uint64_t token, bool is_resumed) {
    uint8_t bytes[64];
    struct out inner = {bytes, sizeof bytes, 0, false};
    put_uint(&inner, 1, INTERVAL_NS);
    put_bytes(&inner, 2, span_of("edge"));
    put_uint(&inner, 3, is_resumed);
    put_uint(&inner, 5, KEYS_NS);
    hear_content(token, ACKNOWLEDGE, (struct span){bytes, inner.used});
}

static void hear_message(uint64_t token, uint64_t id) {
    uint8_t bytes[256], whole[256];
    struct out message = {bytes, sizeof bytes, 0, false}, out = {whole, sizeof whole, 0, false};
    write_message(&message, &(struct message){.id = id, .seen_at = 1, .source = span_of("b"), .topic = span_of("t"),
                                              .body = span_of("x"), .is_reliable = true});
    write_publish(&out, token, (struct span){bytes, message.used});
    hear(&out);
}

static void hear_received(uint64_t token, bool is_subscription, uint64_t id) {
    uint8_t bytes[64];
    struct out out = {bytes, sizeof bytes, 0, false};
    write_received(&out, token, &(struct name){span_of("a"), id, is_subscription});
    hear(&out);
}

/* Advance the time in the steps that the client requests, with heartbeats if the edge is alive. */
static void pass(uint64_t duration_ns, uint64_t heartbeat_of) {
    for (uint64_t until = now.steady_ns + duration_ns; now.steady_ns < until && client.state != ENDED;) {
        uint64_t next = client_tick(&client, now), step = next > now.steady_ns ? next - now.steady_ns : 1;
        step = step < INTERVAL_NS ? step : INTERVAL_NS;
        step = step < until - now.steady_ns ? step : until - now.steady_ns;
        now.steady_ns += step;
        now.utc_ns += step;
        if (heartbeat_of != 0)
            hear_content(heartbeat_of, HEARTBEAT, (struct span){NULL, 0});
    }
    client_tick(&client, now);
}

static void begin(void) {
    memset(&client, 0, sizeof client);
    memset(sent, 0, sizeof sent);
    shown = 0;
    client.device = (struct device){note_sent, stand_still, count_shown, be_quiet, ignore_port};
    client.is_plain = true;
    strcpy(client.id, "a");
    client_subscribe(&client, "tag");
    now = (struct now){1000 * SECOND_NS, 1000 * SECOND_NS};
    client_start(&client, now);
    pass(0, 0);
}

static void end_keys(struct keys *keys) {
    EVP_CIPHER_CTX_free(keys->send);
    EVP_CIPHER_CTX_free(keys->receive);
}

static void finish(void) {
    end_keys(&client.keys);
    end_keys(&client.former_keys);
}

/* ---- the claims ---- */

static void check_opening(void) {
    begin();
    check("INIT is sent at once", sent[INIT] == 1 && last_former == 0);
    pass(10 * SECOND_NS, 0);
    check("INIT is repeated at growing intervals", sent[INIT] >= 4 && sent[INIT] <= 8);
    pass(19 * SECOND_NS, 0);
    check("it tries for 30 s", client.state == OPENING);
    pass(2 * SECOND_NS, 0);
    check("then it gives up", client.state == ENDED && client.ending == NO_ANSWER);
    finish();
}

static void check_repeats(void) {
    begin();
    acknowledge(7, false);
    check("a report follows ACKNOWLEDGE", sent[REPORT] == 1 && last.token == 7);
    pass(20 * SECOND_NS, 7);
    check("it reports every interval", sent[REPORT] >= 20 && sent[REPORT] <= 22);
    check("a subscription is repeated until it is acknowledged", sent[SUBSCRIBE] >= 4 && sent[SUBSCRIBE] <= 9);
    hear_received(7, true, 1);
    int before = sent[SUBSCRIBE];
    client_publish(&client, span_of("t"), span_of("x"), now);
    uint64_t id = client.messages[0].id;
    pass(20 * SECOND_NS, 7);
    check("and no longer after that", sent[SUBSCRIBE] == before);
    check("a message is repeated until it is acknowledged", sent[PUBLISH] >= 4 && sent[PUBLISH] <= 9);
    hear_received(7, false, id + 1);
    check("an acknowledgement of another message is ignored", client.messages[0].progress == WAITING);
    hear_received(7, false, id);
    check("the acknowledgement of the message ends it", client.messages[0].progress == FREE);
    client_publish(&client, span_of("t"), span_of("x"), now);
    sent[PUBLISH] = 0;
    pass(200 * SECOND_NS, 7);
    check("a message that is never acknowledged is dropped", sent[PUBLISH] == 10 && client.messages[0].progress == FREE);
    finish();
}

static void check_hearing(void) {
    begin();
    acknowledge(7, false);
    hear_message(7, 1);
    hear_message(7, 1);
    check("a message is shown once and acknowledged every time", shown == 1 && sent[RECEIVED] == 2);
    hear_message(8, 2);
    check("a message of another session is ignored", shown == 1 && sent[RECEIVED] == 2);
    hear_message(7, 2);
    check("the next is shown", shown == 2);
    finish();
}

static void check_renewal(void) {
    begin();
    acknowledge(7, false);
    hear_received(7, true, 1);
    pass(2900 * SECOND_NS, 7);
    check("one INIT is enough for a long time", sent[INIT] == 1);
    pass(105 * SECOND_NS, 7);
    check("before the keys expire it sends INIT, with the previous token", sent[INIT] >= 2 && last_former == 7);
    int subscribed = sent[SUBSCRIBE], reported = sent[REPORT];
    pass(5 * SECOND_NS, 7);
    check("and continues to report meanwhile", sent[REPORT] >= reported + 4);
    reported = sent[REPORT];
    acknowledge(9, true);
    check("it reports under the new token at once", sent[REPORT] == reported + 1 && last.token == 9);
    pass(5 * SECOND_NS, 9);
    check("a resumed session does not subscribe again", sent[SUBSCRIBE] == subscribed);
    pass(3000 * SECOND_NS, 9);
    check("the next INIT has the new token as previous token", last_former == 9);
    acknowledge(11, false);
    pass(1, 11);
    check("a session that is not resumed subscribes again", sent[SUBSCRIBE] == subscribed + 1);
    finish();
}

static void check_silence(void) {
    begin();
    acknowledge(7, false);
    pass(9 * SECOND_NS, 0);
    check("an edge may be silent for a while", client.state == OPEN);
    pass(2 * SECOND_NS, 0);
    check("then it resumes the session", client.state == OPENING && last_former == 7);
    finish();
}

static void check_endings(void) {
    static const uint8_t stopping[] = {8, STOPPING}, replaced[] = {8, REPLACED};
    begin();
    for (uint64_t token = 1; token <= 20; token++) {
        acknowledge(token, false);
        if (client.state == OPEN)
            hear_content(token, CLOSE, (struct span){stopping, 2});
        check("an ACKNOWLEDGE without an INIT is ignored", (acknowledge(90, false), client.state == OPENING));
        pass(SECOND_NS, 0);
    }
    check("after repeated CLOSE it reconnects at growing intervals", sent[INIT] >= 3 && sent[INIT] <= 10 && last_former == 0);
    pass(10 * SECOND_NS, 0);
    acknowledge(50, false);
    hear_content(50, CLOSE, (struct span){replaced, 2});
    check("a replaced client does not reconnect", client.state == ENDED && client.ending == TURNED_AWAY);
    finish();
}

static void put_seed(struct out *out, bool is_refusal) {
    put_uint(out, 1, 1);
    put_fixed(out, 2, 7);
    size_t begun = begin_nested(out, is_refusal ? REFUSAL : PUBLISH);
    if (is_refusal) {
        put_uint(out, 1, 122);
        put_bytes(out, 2, span_of("TOPIC_CHARACTER"));
        size_t about = begin_nested(out, 4), name = begin_nested(out, 1);
        put_bytes(out, 1, span_of("a"));
        put_uint(out, 2, 1);
        end_nested(out, name);
        end_nested(out, about);
    } else {
        size_t message = begin_nested(out, 1);
        write_message(out, &(struct message){.id = 1, .source = span_of("b"), .topic = span_of("t"), .body = span_of("x")});
        put_bytes(out, 13, span_of("signature"));
        put_bytes(out, 14, span_of("\x0a\x01x\x12\x01y"));
        end_nested(out, message);
    }
    end_nested(out, begun);
}

/* Almost valid bytes, each in memory of exactly its size, so that a build with SANITIZE=1 detects any overrun. */
static void check_garbage(void) {
    uint32_t random = 1;
    begin();
    acknowledge(7, false);
    for (int i = 0; i < 300000; i++) {
        uint8_t bytes[256];
        struct out seed = {bytes, sizeof bytes, 0, false};
        put_seed(&seed, i % 2);
        for (int changes = 1 + i % 3; changes > 0; changes--) {
            random = random * 1664525 + 1013904223;
            bytes[11 + (random >> 8) % (seed.used - 11)] = (uint8_t)(random >> 24);
        }
        size_t size = i % 5 ? seed.used : 1 + (random >> 8) % seed.used;
        uint8_t *exact = malloc(size);
        memcpy(exact, bytes, size);
        client_receive(&client, (struct span){exact, size}, now);
        free(exact);
        if (client.state != OPEN) { /* by chance it ended the session */
            finish();
            begin();
            acknowledge(7, false);
        }
    }
    shown = 0;
    hear_message(7, 1000);
    check("after much garbage a message is still shown", shown == 1);
    finish();
}

int main(void) {
    check_opening();
    check_repeats();
    check_hearing();
    check_renewal();
    check_silence();
    check_endings();
    check_garbage();
    printf("%d checks, %d failed\n", checked, failed);
    return failed > 0;
}
