/* Bounded reading and writing: nothing here exceeds a span or an out, whatever a peer sent. */
#include "milepost.h"

#include <string.h>

struct span span_of(const char *text) {
    return (struct span){(const uint8_t *)text, strlen(text)};
}

bool is_equal(struct span one, struct span other) {
    return one.size == other.size && (one.size == 0 || memcmp(one.at, other.at, one.size) == 0);
}

void put(struct out *out, struct span from) {
    if (out->is_full || from.size > out->size - out->used) {
        out->is_full = true;
        return;
    }
    if (from.size > 0)
        memcpy(out->at + out->used, from.at, from.size);
    out->used += from.size;
}

void put_big(struct out *out, uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        put(out, (struct span){(uint8_t[]){(uint8_t)(value >> shift)}, 1});
}

void put_token(struct out *out, uint64_t token) {
    for (int shift = 0; shift < 64; shift += 8)
        put(out, (struct span){(uint8_t[]){(uint8_t)(token >> shift)}, 1});
}

static void put_varint(struct out *out, uint64_t value) {
    for (; value > 0x7f; value >>= 7)
        put(out, (struct span){(uint8_t[]){(uint8_t)(value | 0x80)}, 1});
    put(out, (struct span){(uint8_t[]){(uint8_t)value}, 1});
}

void put_uint(struct out *out, int number, uint64_t value) {
    put_varint(out, FIELD(number, VARINT));
    put_varint(out, value);
}

void put_fixed(struct out *out, int number, uint64_t value) {
    put_varint(out, FIELD(number, FIXED64));
    put_token(out, value);
}

void put_double(struct out *out, int number, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(out, number, bits);
}

void put_bytes(struct out *out, int number, struct span value) {
    put_varint(out, FIELD(number, BYTES));
    put_varint(out, value.size);
    put(out, value);
}

/* The size of a nested message is known at its end: until then its content is where the size will be. */
size_t begin_nested(struct out *out, int number) {
    put_varint(out, FIELD(number, BYTES));
    return out->used;
}

void end_nested(struct out *out, size_t begun) {
    size_t size = out->used - begun;
    put_varint(out, size);
    if (out->is_full)
        return;
    size_t prefix = out->used - begun - size;
    uint8_t sizes[10];
    memcpy(sizes, out->at + begun + size, prefix);
    memmove(out->at + begun + prefix, out->at + begun, size);
    memcpy(out->at + begun, sizes, prefix);
}

uint64_t get_big(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

uint64_t get_token(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static struct span take(struct in *in, uint64_t size) {
    struct span taken = {in->left.at, (size_t)size};
    if (size > in->left.size) {
        in->is_bad = true;
        return (struct span){NULL, 0};
    }
    in->left.at += size;
    in->left.size -= size;
    return taken;
}

static uint64_t take_varint(struct in *in) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        struct span one = take(in, 1);
        if (in->is_bad)
            return 0;
        value |= (uint64_t)(one.at[0] & 0x7f) << shift;
        if (one.at[0] < 0x80)
            return value;
    }
    in->is_bad = true;
    return 0;
}

/* Read the next field; false at the end, or if the bytes are not protobuf: then is_bad is set. */
bool next_field(struct in *in, struct field *field) {
    *field = (struct field){0};
    if (in->is_bad || in->left.size == 0)
        return false;
    field->key = take_varint(in);
    switch (field->key & 7) {
    case VARINT:
        field->value = take_varint(in);
        break;
    case FIXED64:
        field->bytes = take(in, 8);
        field->value = in->is_bad ? 0 : get_token(field->bytes.at);
        break;
    case BYTES:
        field->bytes = take(in, take_varint(in));
        break;
    case FIXED32:
        take(in, 4);
        break;
    default:
        in->is_bad = true;
    }
    if (field->key >> 3 == 0)
        in->is_bad = true;
    return !in->is_bad;
}
