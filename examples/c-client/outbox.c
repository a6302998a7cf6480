/* Retransmission of reliable messages and subscriptions until they are acknowledged.
 *
 * Invariants: the interval grows with each attempt, with jitter; a message is dropped after the last attempt, a subscription
 * only with its session. They are stored without a token, since it may change between two attempts. */
#include "milepost.h"

#include <openssl/rand.h>
#include <string.h>

#define PAUSE_NS (SECOND_NS / 2)
#define PAUSE_NS_MAX (8 * SECOND_NS)
#define MESSAGE_TRIES 10

/* Interval after this attempt: doubled each time, with 25 % jitter. */
uint64_t pause_after(int tries) {
    uint64_t pause = PAUSE_NS;
    uint8_t random = 0;
    while (--tries > 0 && pause < PAUSE_NS_MAX)
        pause *= 2;
    RAND_bytes(&random, 1);
    return pause * 3 / 4 + pause / 2 * random / 255;
}

bool client_subscribe(struct client *c, const char *query) {
    for (size_t i = 0; i < SUBSCRIPTIONS_MAX && strlen(query) <= MESSAGE_MAX; i++)
        if (c->subscriptions[i].progress == FREE) {
            c->subscriptions[i] = (struct waiting){.progress = WAITING, .id = i + 1, .size = strlen(query)};
            memcpy(c->subscriptions[i].bytes, query, strlen(query));
            return true;
        }
    return false;
}

bool client_has_room(const struct client *c) {
    for (size_t i = 0; i < WAITING_MAX; i++)
        if (c->messages[i].progress == FREE)
            return true;
    return false;
}

/* False if it is too large; the caller has checked client_has_room. */
bool client_publish(struct client *c, struct span topic, struct span body, struct now now) {
    struct report here = {0};
    struct waiting *slot = c->messages;
    while (slot->progress != FREE)
        slot++;
    struct out out = {slot->bytes, sizeof slot->bytes, 0, false};
    c->device.locate(now.utc_ns, &here);
    struct message message = {.id = c->next_id++, .seen_at = now.utc_ns, .source = span_of(c->id), .topic = topic, .body = body,
                              .latitude = here.latitude, .longitude = here.longitude, .is_reliable = true};
    write_message(&out, &message);
    if (out.is_full)
        return false;
    slot->progress = WAITING;
    slot->id = message.id;
    slot->next_at = now.steady_ns;
    slot->tries = 0;
    slot->size = out.used;
    return true;
}

static struct waiting *find_waiting(struct client *c, const struct name *name) {
    struct waiting *waiting = name->is_subscription ? c->subscriptions : c->messages;
    size_t count = name->is_subscription ? SUBSCRIPTIONS_MAX : WAITING_MAX;
    for (size_t i = 0; i < count && is_equal(name->who, span_of(c->id)); i++)
        if (waiting[i].progress == WAITING && waiting[i].id == name->id)
            return &waiting[i];
    return NULL;
}

void settle(struct client *c, const struct name *name, enum progress of_subscription) {
    struct waiting *waiting = find_waiting(c, name);
    if (waiting)
        waiting->progress = name->is_subscription ? of_subscription : FREE;
}

/* Retransmit waiting entries at once; with `again` also those that were acknowledged in an ended session. */
void wake(struct waiting *waiting, size_t count, bool again, struct now now) {
    for (size_t i = 0; i < count; i++) {
        if (again && waiting[i].progress == ANSWERED)
            waiting[i].progress = WAITING;
        waiting[i].tries = 0;
        waiting[i].next_at = now.steady_ns;
    }
}

static void repeat(struct client *c, struct waiting *waiting, bool is_subscription, struct now now) {
    uint8_t bytes[SENT_MAX];
    struct out out = {bytes, sizeof bytes, 0, false};
    struct span content = {waiting->bytes, waiting->size};
    if (!is_subscription && waiting->tries == MESSAGE_TRIES) {
        c->device.say("message %llu was never answered and is given up", (unsigned long long)waiting->id);
        waiting->progress = FREE;
        return;
    }
    if (is_subscription)
        write_subscribe(&out, c->keys.token, span_of(c->id), content, (uint32_t)waiting->id);
    else
        write_publish(&out, c->keys.token, content);
    send_sealed(c, &out);
    waiting->next_at = now.steady_ns + pause_after(++waiting->tries);
}

void repeat_due(struct client *c, struct waiting *waiting, size_t count, struct now now, uint64_t *next) {
    for (size_t i = 0; i < count; i++) {
        if (waiting[i].progress == WAITING && waiting[i].next_at <= now.steady_ns)
            repeat(c, &waiting[i], waiting == c->subscriptions, now);
        if (waiting[i].progress == WAITING && waiting[i].next_at < *next)
            *next = waiting[i].next_at;
    }
}
