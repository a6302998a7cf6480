/* The subset of MQTT 3.1.1 that a load generator and a relay need; packets are written to and found in plain buffers. */
#ifndef MQTT_H
#define MQTT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { CONNECT = 1, CONNACK, PUBLISH, PUBACK, SUBSCRIBE = 8, SUBACK, DISCONNECT = 14 };

#define PACKET_MAX 4096

/* One complete packet inside a buffer. */
typedef struct {
    int type, qos;
    const uint8_t *body;
    size_t body_len, whole_len;
} Packet;

static inline int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static inline int64_t cpu_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Finds the packet that starts at `from`: 1 if it is complete, 0 if more bytes are needed, -1 if it is invalid or too long. */
static inline int next_packet(const uint8_t *from, size_t len, Packet *found) {
    size_t body_len = 0, at = 1;
    for (int shift = 0;; shift += 7, at++) {
        if (at >= len) return 0;
        if (shift > 14) return -1;
        body_len |= (size_t)(from[at] & 127) << shift;
        if (from[at] < 128) break;
    }
    found->type = from[0] >> 4;
    found->qos = (from[0] >> 1) & 3;
    found->body = from + at + 1;
    found->body_len = body_len;
    found->whole_len = at + 1 + body_len;
    if (found->whole_len > PACKET_MAX) return -1;
    return found->whole_len <= len;
}

static inline size_t put_head(uint8_t *to, int first, size_t body_len) {
    to[0] = (uint8_t)first;
    if (body_len < 128) {
        to[1] = (uint8_t)body_len;
        return 2;
    }
    to[1] = (uint8_t)(body_len & 127) | 128;
    to[2] = (uint8_t)(body_len >> 7);
    return 3;
}

static inline size_t put_u16(uint8_t *to, unsigned value) {
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
    return 2;
}

static inline unsigned get_u16(const uint8_t *from) { return (unsigned)from[0] << 8 | from[1]; }

static inline size_t put_text(uint8_t *to, const char *text) {
    size_t len = strlen(text);
    put_u16(to, (unsigned)len);
    memcpy(to + 2, text, len);
    return len + 2;
}

static inline size_t put_connect(uint8_t *to, const char *client_id, int is_clean) {
    size_t at = put_head(to, CONNECT << 4, 10 + 2 + strlen(client_id));
    at += put_text(to + at, "MQTT");
    to[at++] = 4;                   /* MQTT 3.1.1, which all brokers support */
    to[at++] = is_clean ? 2 : 0;
    at += put_u16(to + at, 0);      /* no keep-alive */
    return at + put_text(to + at, client_id);
}

static inline size_t put_subscribe(uint8_t *to, unsigned id, const char *topic_filter, int qos) {
    size_t at = put_head(to, SUBSCRIBE << 4 | 2, 2 + 2 + strlen(topic_filter) + 1);
    at += put_u16(to + at, id);
    at += put_text(to + at, topic_filter);
    to[at++] = (uint8_t)qos;
    return at;
}

/* Writes a PUBLISH up to the payload; *id_at is the offset of the packet id (QoS 1). */
static inline size_t put_publish(uint8_t *to, const char *topic, int qos, size_t payload_len, size_t *id_at) {
    size_t at = put_head(to, PUBLISH << 4 | qos << 1, 2 + strlen(topic) + (qos ? 2 : 0) + payload_len);
    at += put_text(to + at, topic);
    *id_at = at;
    return at + (qos ? put_u16(to + at, 1) : 0);
}

static inline size_t put_ack(uint8_t *to, int type, unsigned id) {
    to[0] = (uint8_t)(type << 4);
    to[1] = 2;
    return 2 + put_u16(to + 2, id);
}

/* Returns the payload of a PUBLISH and its packet id; NULL if the packet is too short. */
static inline const uint8_t *payload_of(const Packet *packet, unsigned *id, size_t *len) {
    if (packet->body_len < 2) return NULL;
    size_t at = 2 + get_u16(packet->body);
    if (packet->qos) {
        if (at + 2 > packet->body_len) return NULL;
        *id = get_u16(packet->body + at);
        at += 2;
    }
    if (at > packet->body_len) return NULL;
    *len = packet->body_len - at;
    return packet->body + at;
}

#endif
