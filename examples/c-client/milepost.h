/* Milepost for a small device: the parts of docs/reference/wire.md that a client needs, on OpenSSL's libcrypto alone.
 *
 *   main.c      sockets, files, the command line
 *   client.c    the session state machine: no socket, no clock
 *   outbox.c    retransmission until acknowledged
 *   datagram.c  the content of datagrams
 *   seal.c      the handshake, encryption, certificates, signatures
 *   bytes.c     bounded reading and writing, protobuf
 *
 * Functions that return bool return false for input that is malformed, forged or too large; their output is then invalid. */
#ifndef MILEPOST_H
#define MILEPOST_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATAGRAM_MAX 64000
#define OUTER_MAX (DATAGRAM_MAX + 17 + 16)
#define CERTIFICATE_MAX 1000
#define ID_MAX 128
#define SOURCE_MAX (ID_MAX + 9) /* an endpoint's id, @edge/ID or @service/ID */
#define INIT_MAX 1600
#define ASK_SIZE 600
#define MAC 16
#define KEY 32
#define SECOND_NS UINT64_C(1000000000)

/* ---- bytes.c: bounded bytes, protobuf ---- */

struct span {
    const uint8_t *at;
    size_t size;
};

/* Bytes that do not fit are dropped, and is_full is set. */
struct out {
    uint8_t *at;
    size_t size, used;
    bool is_full;
};

struct in {
    struct span left;
    bool is_bad;
};

/* A field by its key: number and wire type. A known number with another wire type is an unknown field. */
struct field {
    uint64_t key, value;
    struct span bytes;
};
enum kind { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
#define FIELD(number, kind) ((uint64_t)(number) << 3 | (kind))

struct span span_of(const char *text);
bool is_equal(struct span one, struct span other);
void put(struct out *out, struct span from);
void put_big(struct out *out, uint64_t value, int bytes);
void put_token(struct out *out, uint64_t token);
void put_uint(struct out *out, int number, uint64_t value);
void put_fixed(struct out *out, int number, uint64_t value);
void put_double(struct out *out, int number, double value);
void put_bytes(struct out *out, int number, struct span value);
size_t begin_nested(struct out *out, int number);
void end_nested(struct out *out, size_t begun);
uint64_t get_big(const uint8_t *at, int bytes);
uint64_t get_token(const uint8_t *at);
bool next_field(struct in *in, struct field *field);

/* ---- seal.c: what keeps others out ---- */

struct certificate {
    struct span id, role, key, signing_key;
    uint64_t not_before, not_after;
};

/* Noise_IK as the initiator. Keys are X25519, private keys 32 random bytes. */
struct handshake {
    uint8_t hash[KEY], chain[KEY], key[KEY];
    uint8_t own[KEY], ephemeral[KEY], edge[KEY];
};

/* The replay window: each counter is accepted once, and none that is 256 or more behind the greatest. */
#define WINDOW 256
struct window {
    uint64_t next;
    bool taken[WINDOW];
};

struct keys {
    EVP_CIPHER_CTX *send, *receive;
    uint64_t token, counter;
    struct window window;
};

bool public_key(const uint8_t private[KEY], uint8_t public[KEY]);
bool read_certificate(struct span bytes, const uint8_t authority[KEY], uint64_t now, struct certificate *certificate);
bool is_signed(struct span signing_key, const char *purpose, struct span text, struct span signature);
bool write_first(struct handshake *handshake, struct span payload, struct out *out);
bool read_second(struct handshake *handshake, struct span sealed, struct out *payload, struct keys *keys);
void write_macs(const uint8_t edge[KEY], const uint8_t *cookie, struct out *init);
bool open_cookie(const uint8_t edge[KEY], struct span init, struct span datagram, uint8_t cookie[MAC]);
bool is_new(const struct window *window, uint64_t counter);
void mark_taken(struct window *window, uint64_t counter);
bool is_reset(struct span datagram, uint64_t token, const uint8_t reset[MAC]);
bool seal_data(struct keys *keys, struct span plain, struct out *out);
bool open_data(struct keys *keys, struct span datagram, struct out *plain);
void write_ask(const uint8_t nonce[MAC], double latitude, double longitude, struct out *out);
bool read_here(struct span datagram, const uint8_t nonce[MAC], const uint8_t authority[KEY], uint64_t now,
               uint16_t *port, struct certificate *edge);

/* ---- datagram.c: what is said ---- */

enum content {
    INIT = 3, ACKNOWLEDGE = 4, REPORT = 5, HEARTBEAT = 6, CLOSE = 7, REFUSAL = 8,
    PUBLISH = 11, SUBSCRIBE = 12, UNSUBSCRIBE = 13, NOTICE = 14, RECEIVED = 15
};
enum cause { DONE = 1, SILENT, REPLACED, MOVED, STOPPING, EXPELLED };
#define SESSION_UNKNOWN 190
#define HANDSHAKE_STALE 262

struct datagram {
    uint64_t token;
    enum content content;
    struct span inner;
};

struct report {
    struct span endpoint;
    double latitude, longitude, heading_deg, speed_mps;
    uint64_t seen_at;
};

struct acknowledge {
    uint64_t interval_ns, keys_ns;
    struct span edge, reset;
    bool is_resumed;
};

struct name {
    struct span who;
    uint64_t id;
    bool is_subscription;
};

struct refusal {
    uint64_t reason;
    struct span name, detail;
    struct name about; /* nothing in who: the session */
};

struct message {
    uint64_t id, seen_at;
    double latitude, longitude; /* written, never read */
    struct span source, topic, body;
    bool is_reliable;
    struct span signed_part, signature, certificate; /* empty signature: not signed */
};

bool read_datagram(struct span bytes, struct datagram *datagram);
bool read_acknowledge(struct span inner, struct acknowledge *acknowledge);
bool read_close(struct span inner, uint64_t *cause);
bool read_refusal(struct span inner, struct refusal *refusal);
bool read_publish(struct span inner, struct message *message);
bool read_received(struct span inner, struct name *name);
bool is_verified(const struct message *message, const uint8_t authority[KEY], uint64_t now);
void write_init(struct out *out, const struct report *report, uint64_t former);
void write_report(struct out *out, uint64_t token, const struct report *report);
void write_close(struct out *out, uint64_t token, enum cause cause);
void write_message(struct out *out, const struct message *message);
void write_publish(struct out *out, uint64_t token, struct span message);
void write_subscribe(struct out *out, uint64_t token, struct span owner, struct span query, uint32_t id);
void write_received(struct out *out, uint64_t token, const struct name *name);

/* ---- client.c: the session ---- */

#define SUBSCRIPTIONS_MAX 8
#define WAITING_MAX 32
#define MESSAGE_MAX 1200
#define SENT_MAX (MESSAGE_MAX + 256)
#define SHOWN_MAX 256

/* utc_ns is sent to the edge; steady_ns, which never jumps, is for timers. */
struct now {
    uint64_t utc_ns, steady_ns;
};

enum state { ASKING, OPENING, OPEN, ENDED };
enum ending { LEFT = 0, NO_ANSWER = 3, TURNED_AWAY = 4 };
enum verdict { UNSIGNED, VERIFIED, FORGED };

/* A message or a subscription, retransmitted until it is acknowledged. */
enum progress { FREE, WAITING, ANSWERED, REFUSED };
struct waiting {
    enum progress progress;
    uint64_t id, next_at;
    int tries;
    uint8_t bytes[MESSAGE_MAX];
    size_t size;
};

/* Callbacks of the device: send a datagram, get the position, show messages and events. */
struct device {
    void (*send)(struct span datagram);
    void (*locate)(uint64_t utc_ns, struct report *report);
    void (*show)(const struct message *message, enum verdict verdict);
    void (*say)(const char *format, ...);
    void (*use_port)(uint16_t port);
};

struct client {
    struct device device;
    bool is_plain, knows_edge;
    char id[ID_MAX + 1];
    uint8_t certificate[CERTIFICATE_MAX], own[KEY], edge[KEY], authority[KEY];
    size_t certificate_size;

    enum state state;
    enum ending ending;
    bool is_renewing; /* open, with an INIT in flight */
    bool has_reset, takes_cookie;
    struct keys keys, former_keys;
    uint64_t former, former_until, give_up_at, opened_at, heard_at, report_at, renew_at, interval_ns;
    uint8_t reset[MAC], nonce[MAC];

    struct handshake handshake;
    uint8_t init[INIT_MAX], cookie[MAC];
    size_t init_size;
    uint64_t init_next_at, cookie_until;
    int init_tries, short_sessions;

    uint64_t next_id;
    struct waiting messages[WAITING_MAX], subscriptions[SUBSCRIPTIONS_MAX];
    struct { char source[SOURCE_MAX + 1]; uint64_t id; } shown[SHOWN_MAX];
    size_t shown_next;
};

/* For the device. */
bool client_start(struct client *client, struct now now);
bool client_subscribe(struct client *client, const char *query);
bool client_has_room(const struct client *client);
bool client_publish(struct client *client, struct span topic, struct span body, struct now now);
void client_receive(struct client *client, struct span datagram, struct now now);
uint64_t client_tick(struct client *client, struct now now);
void client_leave(struct client *client);

/* Between client.c and outbox.c. */
void send_sealed(struct client *client, const struct out *plain);
uint64_t pause_after(int tries);
void wake(struct waiting *waiting, size_t count, bool again, struct now now);
void settle(struct client *client, const struct name *name, enum progress of_subscription);
void repeat_due(struct client *client, struct waiting *waiting, size_t count, struct now now, uint64_t *next);

#endif
