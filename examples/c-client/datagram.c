/* The content of a datagram: one protobuf message of datagram.proto, as far as a client needs it. */
#include "milepost.h"

#include <string.h>

bool read_datagram(struct span bytes, struct datagram *datagram) {
    struct in in = {bytes, bytes.size > DATAGRAM_MAX};
    struct field field;
    uint64_t version = 0;
    *datagram = (struct datagram){0};
    while (next_field(&in, &field)) {
        uint64_t number = field.key >> 3;
        if (field.key == FIELD(1, VARINT))
            version = field.value;
        else if (field.key == FIELD(2, FIXED64))
            datagram->token = field.value;
        else if ((field.key & 7) == BYTES && number >= INIT && number <= RECEIVED) {
            datagram->content = (enum content)number;
            datagram->inner = field.bytes;
        }
    }
    return !in.is_bad && version == 1 && datagram->content != 0;
}

bool read_acknowledge(struct span inner, struct acknowledge *acknowledge) {
    struct in in = {inner, false};
    struct field field;
    *acknowledge = (struct acknowledge){0};
    while (next_field(&in, &field))
        switch (field.key) {
        case FIELD(1, VARINT): acknowledge->interval_ns = field.value; break;
        case FIELD(2, BYTES): acknowledge->edge = field.bytes; break;
        case FIELD(3, VARINT): acknowledge->is_resumed = field.value != 0; break;
        case FIELD(4, BYTES): acknowledge->reset = field.bytes; break;
        case FIELD(5, VARINT): acknowledge->keys_ns = field.value; break;
        }
    bool is_resettable = acknowledge->reset.size == 0 || acknowledge->reset.size == MAC;
    return !in.is_bad && acknowledge->interval_ns >= 1 && acknowledge->interval_ns <= 86400 * SECOND_NS && is_resettable;
}

bool read_close(struct span inner, uint64_t *cause) {
    struct in in = {inner, false};
    struct field field;
    *cause = 0;
    while (next_field(&in, &field))
        if (field.key == FIELD(1, VARINT))
            *cause = field.value;
    return !in.is_bad && *cause != 0;
}

/* MessageName and SubscriptionName have the same two fields. */
static bool read_who(struct span inner, struct name *name) {
    struct in in = {inner, false};
    struct field field;
    while (next_field(&in, &field))
        switch (field.key) {
        case FIELD(1, BYTES): name->who = field.bytes; break;
        case FIELD(2, VARINT): name->id = field.value; break;
        }
    return !in.is_bad && name->who.size >= 1 && name->who.size <= SOURCE_MAX;
}

bool read_received(struct span inner, struct name *name) {
    struct in in = {inner, false};
    struct field field;
    bool is_good = false;
    *name = (struct name){0};
    while (next_field(&in, &field))
        if (field.key == FIELD(1, BYTES) || field.key == FIELD(2, BYTES)) {
            *name = (struct name){.is_subscription = field.key == FIELD(2, BYTES)};
            is_good = read_who(field.bytes, name);
        }
    return !in.is_bad && is_good;
}

bool read_refusal(struct span inner, struct refusal *refusal) {
    struct in in = {inner, false};
    struct field field;
    bool is_good = true;
    *refusal = (struct refusal){0};
    while (next_field(&in, &field))
        switch (field.key) {
        case FIELD(1, VARINT): refusal->reason = field.value; break;
        case FIELD(2, BYTES): refusal->name = field.bytes; break;
        case FIELD(3, BYTES): refusal->detail = field.bytes; break;
        case FIELD(4, BYTES): is_good = read_received(field.bytes, &refusal->about); break;
        }
    return !in.is_bad && is_good && refusal->reason != 0;
}

/* The signature covers everything before field 13. Fields after the signature would be unsigned: refuse them. */
static bool read_message(struct span inner, struct message *message) {
    struct in in = {inner, false};
    struct field field;
    *message = (struct message){0};
    for (size_t before = 0; next_field(&in, &field); before = inner.size - in.left.size) {
        if (message->signature.size > 0 && field.key >> 3 <= 13)
            return false;
        switch (field.key) {
        case FIELD(1, VARINT): message->id = field.value; break;
        case FIELD(2, BYTES): message->source = field.bytes; break;
        case FIELD(3, BYTES): message->topic = field.bytes; break;
        case FIELD(4, FIXED64): message->seen_at = field.value; break;
        case FIELD(10, VARINT): message->is_reliable = field.value != 0; break;
        case FIELD(12, BYTES): message->body = field.bytes; break;
        case FIELD(13, BYTES):
            message->signature = field.bytes;
            message->signed_part = (struct span){inner.at, before};
            break;
        case FIELD(14, BYTES): message->certificate = field.bytes; break;
        }
    }
    return !in.is_bad && message->topic.size > 0 && message->source.size >= 1 && message->source.size <= SOURCE_MAX;
}

bool read_publish(struct span inner, struct message *message) {
    struct in in = {inner, false};
    struct field field;
    bool is_good = false;
    while (next_field(&in, &field))
        if (field.key == FIELD(1, BYTES))
            is_good = read_message(field.bytes, message);
    return !in.is_bad && is_good;
}

/* Whether the source is that of the edge's own messages: @edge/ID. */
static bool is_edge_source(struct span source, struct span id) {
    struct span mark = span_of("@edge/");
    return source.size == mark.size + id.size && memcmp(source.at, mark.at, mark.size) == 0 &&
           memcmp(source.at + mark.size, id.at, id.size) == 0;
}

/* Whether the message was signed by an edge of our certificate authority. */
bool is_verified(const struct message *message, const uint8_t authority[KEY], uint64_t now) {
    struct certificate signer;
    return read_certificate(message->certificate, authority, now, &signer) && is_equal(signer.role, span_of("edge")) &&
           is_edge_source(message->source, signer.id) &&
           is_signed(signer.signing_key, "milepost message", message->signed_part, message->signature);
}

static void put_head(struct out *out, uint64_t token) {
    put_uint(out, 1, 1);
    if (token != 0)
        put_fixed(out, 2, token);
}

static void put_report(struct out *out, int number, const struct report *report) {
    size_t begun = begin_nested(out, number);
    put_bytes(out, 1, report->endpoint);
    put_double(out, 2, report->latitude);
    put_double(out, 3, report->longitude);
    put_fixed(out, 4, report->seen_at);
    put_double(out, 5, report->heading_deg);
    put_double(out, 6, report->speed_mps);
    end_nested(out, begun);
}

void write_init(struct out *out, const struct report *report, uint64_t former) {
    put_head(out, 0);
    size_t begun = begin_nested(out, INIT);
    put_report(out, 1, report);
    if (former != 0)
        put_fixed(out, 2, former);
    end_nested(out, begun);
}

void write_report(struct out *out, uint64_t token, const struct report *report) {
    put_head(out, token);
    put_report(out, REPORT, report);
}

void write_close(struct out *out, uint64_t token, enum cause cause) {
    put_head(out, token);
    size_t begun = begin_nested(out, CLOSE);
    put_uint(out, 1, cause);
    end_nested(out, begun);
}

/* To content: the endpoints whose subscription matches. */
void write_message(struct out *out, const struct message *message) {
    put_uint(out, 1, message->id);
    put_bytes(out, 2, message->source);
    put_bytes(out, 3, message->topic);
    put_fixed(out, 4, message->seen_at);
    size_t place = begin_nested(out, 7);
    put_double(out, 1, message->latitude);
    put_double(out, 2, message->longitude);
    end_nested(out, place);
    if (message->is_reliable)
        put_uint(out, 10, 1);
    if (message->body.size > 0)
        put_bytes(out, 12, message->body);
}

void write_publish(struct out *out, uint64_t token, struct span message) {
    put_head(out, token);
    size_t begun = begin_nested(out, PUBLISH);
    put_bytes(out, 1, message);
    end_nested(out, begun);
}

void write_subscribe(struct out *out, uint64_t token, struct span owner, struct span query, uint32_t id) {
    put_head(out, token);
    size_t begun = begin_nested(out, SUBSCRIBE);
    put_bytes(out, 1, owner);
    put_bytes(out, 2, query);
    put_uint(out, 7, id);
    end_nested(out, begun);
}

void write_received(struct out *out, uint64_t token, const struct name *name) {
    put_head(out, token);
    size_t begun = begin_nested(out, RECEIVED);
    size_t thing = begin_nested(out, name->is_subscription ? 2 : 1);
    put_bytes(out, 1, name->who);
    put_uint(out, 2, name->id);
    end_nested(out, thing);
    end_nested(out, begun);
}
