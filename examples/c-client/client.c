/* The session of one endpoint with its edge, without a socket and without a clock: the device calls client_receive with each
 * datagram, and client_tick when a timer is due.
 *
 *   state    HERE        ACK                COOKIE       DATA       RESET, CLOSE   timeout               30 s without a session
 *   ASKING   -> OPENING  -                  -            -          -              ASK again             -> ENDED
 *   OPENING  -           -> OPEN, report    INIT again   -          -              INIT again            -> ENDED
 *   OPEN     -           new keys, report   INIT again   accepted   -> OPENING     -> OPENING, resumes   -
 *
 * Invariants: a counter is used once per key; a reliable message is shown once and acknowledged every time; a late datagram
 * under the previous keys does not end the session. */
#include "milepost.h"

#include <assert.h>
#include <openssl/rand.h>
#include <string.h>

#define GIVE_UP_NS (30 * SECOND_NS)
#define LASTING_NS (10 * SECOND_NS)
#define COOKIE_NS (120 * SECOND_NS)
#define FORMER_NS (10 * SECOND_NS)
#define INIT_REPEATS 4
#define SILENT_INTERVALS 10

void send_sealed(struct client *c, const struct out *plain) {
    uint8_t bytes[SENT_MAX + 33];
    struct out out = {bytes, sizeof bytes, 0, false};
    struct span said = {plain->at, plain->used};
    assert(!plain->is_full);
    if (c->is_plain)
        c->device.send(said);
    else if (seal_data(&c->keys, said, &out))
        c->device.send((struct span){bytes, out.used});
}

static struct report report_now(struct client *c, struct now now) {
    struct report report = {.endpoint = span_of(c->id), .seen_at = now.utc_ns};
    c->device.locate(now.utc_ns, &report);
    return report;
}

static void send_report(struct client *c, struct now now) {
    uint8_t bytes[SENT_MAX];
    struct out out = {bytes, sizeof bytes, 0, false};
    struct report report = report_now(c, now);
    write_report(&out, c->keys.token, &report);
    send_sealed(c, &out);
    c->report_at = now.steady_ns + c->interval_ns;
}

/* ---- ASK and INIT ---- */

/* Whether an INIT is unanswered: only then ACK and COOKIE are processed. */
static bool awaits_answer(const struct client *c) {
    return (c->state == OPENING || c->is_renewing) && c->init_size > 0;
}

static void end(struct client *c, enum ending ending) {
    c->state = ENDED;
    c->ending = ending;
}

/* The payload of the first Noise message, or the whole of an unencrypted INIT. */
static void put_hello(struct client *c, struct out *out, struct now now) {
    struct report report = report_now(c, now);
    if (!c->is_plain) {
        put_big(out, now.utc_ns, 8);
        put_big(out, c->certificate_size, 2);
        put(out, (struct span){c->certificate, c->certificate_size});
    }
    write_init(out, &report, c->former);
}

static bool make_init(struct client *c, struct now now) {
    uint8_t bytes[INIT_MAX];
    struct out hello = {bytes, sizeof bytes, 0, false}, init = {c->init, sizeof c->init, 0, false};
    bool is_good = true;
    put_hello(c, &hello, now);
    if (c->is_plain) {
        put(&init, (struct span){hello.at, hello.used});
    } else {
        memcpy(c->handshake.own, c->own, KEY);
        memcpy(c->handshake.edge, c->edge, KEY);
        put_big(&init, 1, 1);
        is_good = RAND_bytes(c->handshake.ephemeral, KEY) > 0 &&
                  write_first(&c->handshake, (struct span){hello.at, hello.used}, &init);
        write_macs(c->edge, now.steady_ns < c->cookie_until ? c->cookie : NULL, &init);
    }
    c->init_tries = 0;
    c->init_size = init.used;
    return is_good && !hello.is_full && !init.is_full;
}

/* Send ASK or INIT from now on; after a short session only with a delay, to avoid a tight loop. */
static void call(struct client *c, enum state state, uint64_t former, struct now now) {
    c->state = state;
    c->is_renewing = state == OPEN;
    c->former = former;
    c->init_size = 0;
    c->init_tries = 0;
    c->init_next_at = now.steady_ns + (c->short_sessions > 0 && state != OPEN ? pause_after(c->short_sessions) : 0);
}

/* Start a session, or resume the previous one. */
static void open_session(struct client *c, uint64_t former, struct now now) {
    c->short_sessions = now.steady_ns - c->opened_at < LASTING_NS ? c->short_sessions + 1 : 0;
    c->give_up_at = now.steady_ns + GIVE_UP_NS;
    call(c, c->is_plain || c->knows_edge ? OPENING : ASKING, former, now);
}

static void send_ask_or_init(struct client *c, struct now now) {
    uint8_t bytes[ASK_SIZE];
    struct out ask = {bytes, sizeof bytes, 0, false};
    if (c->state == ASKING) {
        struct report report = report_now(c, now);
        write_ask(c->nonce, report.latitude, report.longitude, &ask);
        c->device.send((struct span){bytes, ask.used});
    } else {
        if ((c->init_size == 0 || c->init_tries > INIT_REPEATS) && !make_init(c, now))
            return end(c, TURNED_AWAY);
        c->device.send((struct span){c->init, c->init_size});
        c->takes_cookie = true;
    }
    c->init_next_at = now.steady_ns + pause_after(++c->init_tries);
}

static void take_here(struct client *c, struct span datagram, struct now now) {
    struct certificate edge;
    uint16_t port;
    if (c->state != ASKING || !read_here(datagram, c->nonce, c->authority, now.utc_ns, &port, &edge))
        return;
    memcpy(c->edge, edge.key.at, KEY);
    c->knows_edge = true;
    c->device.say("found the edge %.*s", (int)edge.id.size, (const char *)edge.id.at);
    c->device.use_port(port);
    call(c, OPENING, c->former, now);
}

/* Accept one COOKIE per INIT: otherwise forged COOKIEs would make the client send at any rate. */
static void take_cookie(struct client *c, struct span datagram, struct now now) {
    struct span init = {c->init, c->init_size};
    if (!awaits_answer(c) || !c->takes_cookie || !open_cookie(c->edge, init, datagram, c->cookie))
        return;
    struct out again = {c->init, sizeof c->init, c->init_size - 2 * MAC, false};
    write_macs(c->edge, c->cookie, &again);
    c->device.send(init);
    c->cookie_until = now.steady_ns + COOKIE_NS;
    c->takes_cookie = false;
}

/* ---- the session is open ---- */

static void take_acknowledge(struct client *c, const struct datagram *datagram, struct now now) {
    struct acknowledge acknowledge;
    if (datagram->token == 0 || !read_acknowledge(datagram->inner, &acknowledge))
        return;
    /* The new keys are in the slot of the previous ones: swap, so that the current ones become the previous. */
    struct keys fresh = c->former_keys;
    c->former_keys = c->keys;
    c->keys = fresh;
    c->keys.token = datagram->token;
    c->former_until = c->is_renewing ? now.steady_ns + FORMER_NS : 0;
    c->has_reset = acknowledge.reset.size == MAC;
    if (c->has_reset)
        memcpy(c->reset, acknowledge.reset.at, MAC);
    c->interval_ns = acknowledge.interval_ns;
    c->renew_at = UINT64_MAX;
    if (acknowledge.keys_ns != 0 && acknowledge.keys_ns < UINT64_MAX / 4)
        c->renew_at = now.steady_ns + acknowledge.keys_ns / 4 * 3;
    c->device.say(acknowledge.is_resumed ? "the session goes on" : "a session is open");
    c->state = OPEN;
    c->is_renewing = false;
    c->heard_at = c->opened_at = now.steady_ns;
    send_report(c, now);
    wake(c->messages, WAITING_MAX, false, now);
    wake(c->subscriptions, SUBSCRIPTIONS_MAX, !acknowledge.is_resumed, now);
}

static bool is_shown(struct client *c, const struct message *message) {
    for (size_t i = 0; i < SHOWN_MAX; i++)
        if (c->shown[i].id == message->id && is_equal(span_of(c->shown[i].source), message->source))
            return true;
    size_t place = c->shown_next++ % SHOWN_MAX;
    memset(&c->shown[place], 0, sizeof c->shown[place]);
    memcpy(c->shown[place].source, message->source.at, message->source.size);
    c->shown[place].id = message->id;
    return false;
}

static void take_message(struct client *c, struct span inner, struct now now) {
    uint8_t bytes[SENT_MAX];
    struct out out = {bytes, sizeof bytes, 0, false};
    struct message message;
    if (!read_publish(inner, &message))
        return;
    if (!message.is_reliable || !is_shown(c, &message)) {
        enum verdict verdict = UNSIGNED;
        if (message.signature.size > 0)
            verdict = is_verified(&message, c->authority, now.utc_ns) ? VERIFIED : FORGED;
        c->device.show(&message, verdict);
    }
    if (message.is_reliable) {
        write_received(&out, c->keys.token, &(struct name){message.source, message.id, false});
        send_sealed(c, &out);
    }
}

static void take_refusal(struct client *c, struct span inner, struct now now) {
    struct refusal refusal;
    if (!read_refusal(inner, &refusal))
        return;
    const char *what = refusal.about.who.size == 0 ? "the edge" : refusal.about.is_subscription ? "subscription" : "message";
    c->device.say("refused (%s): %llu %.*s: %.*s", what, (unsigned long long)refusal.reason, (int)refusal.name.size,
                  (const char *)refusal.name.at, (int)refusal.detail.size, (const char *)refusal.detail.at);
    if (refusal.about.who.size > 0)
        settle(c, &refusal.about, REFUSED);
    else if (refusal.reason == SESSION_UNKNOWN)
        open_session(c, 0, now);
    else if (refusal.reason == HANDSHAKE_STALE && c->init_tries > 1)
        c->init_size = 0; /* a late repetition: the next INIT is a new one */
    else if (c->state == OPENING || c->is_renewing)
        end(c, TURNED_AWAY);
}

static void take_close(struct client *c, struct span inner, struct now now) {
    static const char *const causes[] = {"?", "done", "silent", "replaced", "moved", "stopping", "expelled"};
    uint64_t cause;
    if (!read_close(inner, &cause))
        return;
    c->device.say("the edge closed the session: %s", causes[cause <= EXPELLED ? cause : 0]);
    if (cause == REPLACED || cause == EXPELLED)
        return end(c, TURNED_AWAY);
    open_session(c, 0, now);
}

/* Handle a decrypted datagram under this token; a late one under the previous token does not end the session. */
static void take_plain(struct client *c, struct span plain, uint64_t token, struct now now) {
    struct datagram datagram;
    struct name name;
    if (!read_datagram(plain, &datagram) || datagram.token != token)
        return;
    bool is_current = token == c->keys.token;
    c->heard_at = now.steady_ns;
    if (datagram.content == PUBLISH)
        take_message(c, datagram.inner, now);
    else if (datagram.content == RECEIVED && read_received(datagram.inner, &name))
        settle(c, &name, ANSWERED);
    else if (datagram.content == REFUSAL && is_current)
        take_refusal(c, datagram.inner, now);
    else if (datagram.content == CLOSE && is_current)
        take_close(c, datagram.inner, now);
}

/* Handle the answer to INIT: a session, or a refusal. */
static void take_answer(struct client *c, struct span plain, struct now now) {
    struct datagram datagram;
    if (!read_datagram(plain, &datagram))
        return;
    if (datagram.content == ACKNOWLEDGE)
        take_acknowledge(c, &datagram, now);
    else if (datagram.content == REFUSAL && datagram.token == 0)
        take_refusal(c, datagram.inner, now);
}

/* An edge without encryption: answers to INIT arrive like any other datagram. */
static void receive_plain(struct client *c, struct span plain, struct now now) {
    if (awaits_answer(c))
        take_answer(c, plain, now);
    if (c->state == OPEN)
        take_plain(c, plain, c->keys.token, now);
}

static void take_data(struct client *c, struct span datagram, struct now now) {
    static uint8_t bytes[DATAGRAM_MAX];
    struct out plain = {bytes, sizeof bytes, 0, false};
    struct keys *keys = &c->keys;
    if (datagram.size > 9 && now.steady_ns < c->former_until && get_token(datagram.at + 1) == c->former_keys.token)
        keys = &c->former_keys;
    if (c->state == OPEN && open_data(keys, datagram, &plain))
        take_plain(c, (struct span){bytes, plain.used}, keys->token, now);
}

static void take_ack(struct client *c, struct span datagram, struct now now) {
    uint8_t bytes[INIT_MAX];
    struct out plain = {bytes, sizeof bytes, 0, false};
    if (awaits_answer(c) && read_second(&c->handshake, datagram, &plain, &c->former_keys))
        take_answer(c, (struct span){bytes, plain.used}, now);
}

static void take_reset(struct client *c, struct span datagram, struct now now) {
    if (c->state != OPEN || !c->has_reset || !is_reset(datagram, c->keys.token, c->reset))
        return;
    c->device.say("the edge does not know the session any more");
    open_session(c, 0, now);
}

void client_receive(struct client *c, struct span datagram, struct now now) {
    if (c->state == ENDED || datagram.size == 0)
        return;
    if (c->is_plain)
        return receive_plain(c, datagram, now);
    switch (datagram.at[0]) {
    case 2: return take_ack(c, datagram, now);
    case 3: return take_cookie(c, datagram, now);
    case 4: return take_data(c, datagram, now);
    case 5: return take_reset(c, datagram, now);
    case 7: return take_here(c, datagram, now);
    }
}

/* ---- what is sent without being asked ---- */

static uint64_t tick_open(struct client *c, struct now now) {
    uint64_t silent_at = c->heard_at + SILENT_INTERVALS * c->interval_ns;
    if (now.steady_ns >= silent_at) {
        c->device.say("the edge is silent");
        open_session(c, c->keys.token, now);
        return now.steady_ns;
    }
    if (now.steady_ns >= c->report_at)
        send_report(c, now);
    if (now.steady_ns >= c->renew_at && !c->is_renewing) {
        call(c, OPEN, c->keys.token, now);
        c->renew_at = UINT64_MAX;
    }
    uint64_t next = silent_at < c->report_at ? silent_at : c->report_at;
    repeat_due(c, c->subscriptions, SUBSCRIPTIONS_MAX, now, &next);
    repeat_due(c, c->messages, WAITING_MAX, now, &next);
    return next < c->renew_at ? next : c->renew_at;
}

/* Send what is due; return the time of the next call. */
uint64_t client_tick(struct client *c, struct now now) {
    uint64_t next = UINT64_MAX;
    if (c->state == OPEN)
        next = tick_open(c, now);
    else if (c->state != ENDED && now.steady_ns >= c->give_up_at)
        end(c, NO_ANSWER);
    bool is_calling = c->state == ASKING || c->state == OPENING || c->is_renewing;
    if (is_calling && now.steady_ns >= c->init_next_at)
        send_ask_or_init(c, now);
    return is_calling && c->init_next_at < next ? c->init_next_at : next;
}

/* ---- what the device asks for ---- */

bool client_start(struct client *c, struct now now) {
    c->keys = (struct keys){.send = EVP_CIPHER_CTX_new(), .receive = EVP_CIPHER_CTX_new()};
    c->former_keys = (struct keys){.send = EVP_CIPHER_CTX_new(), .receive = EVP_CIPHER_CTX_new()};
    /* Source and id identify a message for ever, so ids continue after a restart. */
    c->next_id = now.utc_ns;
    c->opened_at = now.steady_ns - LASTING_NS;
    open_session(c, 0, now);
    return RAND_bytes(c->nonce, MAC) > 0 && c->keys.send && c->keys.receive && c->former_keys.send && c->former_keys.receive;
}

void client_leave(struct client *c) {
    uint8_t bytes[64];
    struct out out = {bytes, sizeof bytes, 0, false};
    if (c->state == OPEN) {
        write_close(&out, c->keys.token, DONE);
        send_sealed(c, &out);
    }
    end(c, LEFT);
}
