/* Sessions and their encryption.
 *
 *   DATA = 04 | token 8 LE | counter u64 BE | encrypted datagram (n + 16)
 *          AES-256-GCM, nonce = 4 zeros + counter, no associated data
 *
 * A file of sessions has one record after another, all numbers little-endian:
 *
 *   token u64 | key 32 | seen_at at u16 | latitude at u16 | length u16 | plain datagram
 *
 * `seen_at at` and `latitude at` are the offsets of these 8 bytes in the plain datagram (an integer and a double); 65535: none.
 */
#ifndef ENCRYPTION_H
#define ENCRYPTION_H

#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_BYTES 32
#define TAG_BYTES 16
#define DATA_HEAD 17
#define NOWHERE 65535

typedef struct {
    uint64_t token, counter;
    EVP_CIPHER_CTX *encrypt, *open; /* initialised on first use */
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

/* Writes a DATA datagram with the session's next counter; returns its length. `to` has space for len + DATA_HEAD + TAG_BYTES. */
size_t encrypt(Session *session, const uint8_t *plain, size_t len, uint8_t *to);

/* Decrypts a DATA datagram in place and returns the plain length; -1: not DATA, an unknown session, or altered. */
int decrypt(const Sessions *sessions, uint8_t *data, size_t len);
#endif
