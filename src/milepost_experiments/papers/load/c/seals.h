/* Sessions and their seals.
 *
 *   DATA = 04 | token 8 LE | counter u64 BE | sealed plain datagram (n + 16)
 *          AES-256-GCM, nonce = 4 zeros + counter, nothing associated
 *
 * A file of sessions has one record after another, all numbers little-endian:
 *
 *   token u64 | key 32 | seen_at at u16 | latitude at u16 | length u16 | plain datagram
 *
 * `seen_at at` and `latitude at` say where in the plain datagram these 8 bytes lie (an integer and a double); 65535: nowhere.
 */
#ifndef SEALS_H
#define SEALS_H

#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_BYTES 32
#define TAG_BYTES 16
#define DATA_HEAD 17
#define NOWHERE 65535

typedef struct {
    uint64_t token, counter;
    EVP_CIPHER_CTX *seal, *open; /* keyed once, each when it is first needed */
    uint8_t *plain;
    double latitude; /* as it was in the file */
    uint16_t len, seen_at_at, latitude_at;
    uint8_t key[KEY_BYTES];
} Session;

typedef struct {
    Session *all;
    size_t count;
    uint32_t *slots; /* 1 + index by token; 0: free */
    size_t slot_mask;
} Sessions;

Sessions read_sessions(const char *path);
Session *session_of(const Sessions *sessions, uint64_t token); /* NULL if there is none */

/* The whole DATA datagram with the session's next counter; gives its length. `to` has room for len + DATA_HEAD + TAG_BYTES. */
size_t seal(Session *session, const uint8_t *plain, size_t len, uint8_t *to);

/* Opens a DATA datagram in its place; -1: it is none, its session is unknown, or it was changed. Gives the plain length. */
int open_sealed(const Sessions *sessions, uint8_t *data, size_t len);
#endif
