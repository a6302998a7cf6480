#include "encryption.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "udp.h"

#define RECORD_HEAD 46
#define DATA_KIND 4

static uint16_t get_u16(const uint8_t *from) { return (uint16_t)(from[0] | from[1] << 8); }

static uint8_t *whole_file(const char *path, size_t *len) {
    FILE *file = fopen(path, "rb");
    check(file && fseek(file, 0, SEEK_END) == 0, "the file of sessions does not exist");
    long size = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc((size_t)size + 1);
    check(bytes && fread(bytes, 1, (size_t)size, file) == (size_t)size, "the file of sessions cannot be read");
    fclose(file);
    *len = (size_t)size;
    return bytes;
}

/* Reads the record at `from`; returns its length. */
static size_t read_record(Session *session, uint8_t *from, size_t left) {
    check(left >= RECORD_HEAD, "the last record is truncated");
    memcpy(&session->token, from, 8);
    memcpy(session->key, from + 8, KEY_BYTES);
    session->seen_at_at = get_u16(from + 40);
    session->latitude_at = get_u16(from + 42);
    session->len = get_u16(from + 44);
    session->plain = from + RECORD_HEAD;
    check(session->len <= left - RECORD_HEAD, "the last record is truncated");
    check(session->len <= DATAGRAM_MAX - DATA_HEAD - TAG_BYTES, "a record is too long");
    check(session->seen_at_at == NOWHERE || session->seen_at_at + 8 <= session->len, "seen_at lies outside its record");
    check(session->latitude_at == NOWHERE || session->latitude_at + 8 <= session->len, "latitude lies outside its record");
    if (session->latitude_at != NOWHERE) memcpy(&session->latitude, session->plain + session->latitude_at, 8);
    return RECORD_HEAD + session->len;
}

static size_t slot_of(const Sessions *sessions, uint64_t token) {
    size_t at = (size_t)((token * 0x9E3779B97F4A7C15ULL) >> 32) & sessions->slot_mask;
    while (sessions->slots[at] && sessions->all[sessions->slots[at] - 1].token != token) at = (at + 1) & sessions->slot_mask;
    return at;
}

Session *session_of(const Sessions *sessions, uint64_t token) {
    uint32_t found = sessions->slots[slot_of(sessions, token)];
    return found ? &sessions->all[found - 1] : NULL;
}

Sessions read_sessions(const char *path) {
    size_t len, count = 0, reserve = 1;
    uint8_t *bytes = whole_file(path, &len);
    for (size_t at = 0; at + RECORD_HEAD <= len; at += RECORD_HEAD + get_u16(bytes + at + 44)) count++;
    check(count > 0 && count <= SESSIONS_MAX, "no sessions, or too many");
    while (reserve < 2 * count) reserve *= 2;
    Sessions sessions = {calloc(count, sizeof(Session)), count, calloc(reserve, sizeof(uint32_t)), reserve - 1};
    check(sessions.all && sessions.slots, "no memory");
    for (size_t number = 0, at = 0; number < count; number++) {
        at += read_record(&sessions.all[number], bytes + at, len - at);
        sessions.slots[slot_of(&sessions, sessions.all[number].token)] = (uint32_t)number + 1;
    }
    return sessions;
}

static EVP_CIPHER_CTX *keyed(const uint8_t *key, int is_encrypting) {
    static EVP_CIPHER *cipher;
    if (!cipher) cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    check(cipher && context && EVP_CipherInit_ex2(context, cipher, key, NULL, is_encrypting, NULL), "no AES-256-GCM");
    return context;
}

size_t encrypt(Session *session, const uint8_t *plain, size_t len, uint8_t *to) {
    uint8_t nonce[12] = {0};
    uint64_t counter = __builtin_bswap64(session->counter++);
    int encrypted, rest;
    if (!session->encrypt) session->encrypt = keyed(session->key, 1);
    memcpy(nonce + 4, &counter, 8);
    to[0] = DATA_KIND;
    memcpy(to + 1, &session->token, 8);
    memcpy(to + 9, &counter, 8);
    int is_good = EVP_EncryptInit_ex2(session->encrypt, NULL, NULL, nonce, NULL) &&
                  EVP_EncryptUpdate(session->encrypt, to + DATA_HEAD, &encrypted, plain, (int)len) &&
                  EVP_EncryptFinal_ex(session->encrypt, to + DATA_HEAD + encrypted, &rest) &&
                  EVP_CIPHER_CTX_ctrl(session->encrypt, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, to + DATA_HEAD + len);
    check(is_good, "encryption failed");
    return DATA_HEAD + len + TAG_BYTES;
}

int decrypt(const Sessions *sessions, uint8_t *data, size_t len) {
    uint64_t token;
    uint8_t nonce[12] = {0};
    int decrypted, rest;
    if (len < DATA_HEAD + TAG_BYTES || data[0] != DATA_KIND) return -1;
    memcpy(&token, data + 1, 8);
    memcpy(nonce + 4, data + 9, 8);
    Session *session = session_of(sessions, token);
    if (!session) return -1;
    if (!session->open) session->open = keyed(session->key, 0);
    uint8_t *encrypted = data + DATA_HEAD;
    size_t plain_len = len - DATA_HEAD - TAG_BYTES;
    int is_good = EVP_DecryptInit_ex2(session->open, NULL, NULL, nonce, NULL) &&
                  EVP_DecryptUpdate(session->open, encrypted, &decrypted, encrypted, (int)plain_len) &&
                  EVP_CIPHER_CTX_ctrl(session->open, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, encrypted + plain_len) &&
                  EVP_DecryptFinal_ex(session->open, encrypted + decrypted, &rest) == 1;
    return is_good ? (int)plain_len : -1;
}
