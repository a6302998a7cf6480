/* The handshake Noise_IK_25519_AESGCM_SHA256, encrypted datagrams, certificates and signatures (docs/reference/wire.md).
 *
 * Invariants: no content is used before it is authenticated, and a counter enters the replay window only after that. */
#include "milepost.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

enum outer { OUTER_INIT = 1, OUTER_ACK, OUTER_COOKIE, OUTER_DATA, OUTER_RESET, OUTER_ASK, OUTER_HERE };
#define DATA_HEAD 17
#define SIGNATURE 64

static bool hash(struct span one, struct span other, uint8_t digest[KEY]) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) && EVP_DigestUpdate(context, one.at, one.size) &&
                   EVP_DigestUpdate(context, other.at, other.size) && EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
    return is_good;
}

static void hmac(struct span key, struct span text, uint8_t digest[KEY]) {
    unsigned size;
    HMAC(EVP_sha256(), key.at, (int)key.size, text.at, text.size, digest, &size);
}

/* HKDF-SHA256 without info, two outputs, as Noise defines it. */
static void derive_two(const uint8_t chain[KEY], struct span secret, uint8_t first[KEY], uint8_t second[KEY]) {
    uint8_t root[KEY], text[KEY + 1];
    hmac((struct span){chain, KEY}, secret, root);
    text[0] = 1;
    hmac((struct span){root, KEY}, (struct span){text, 1}, first);
    memcpy(text, first, KEY);
    text[KEY] = 2;
    hmac((struct span){root, KEY}, (struct span){text, KEY + 1}, second);
}

bool public_key(const uint8_t private[KEY], uint8_t public[KEY]) {
    size_t size = KEY;
    EVP_PKEY *pair = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private, KEY);
    bool is_good = pair && EVP_PKEY_get_raw_public_key(pair, public, &size);
    EVP_PKEY_free(pair);
    return is_good;
}

/* False also for a point of low order: OpenSSL refuses a shared secret of zeros. */
static bool exchange(const uint8_t private[KEY], const uint8_t public[KEY], uint8_t secret[KEY]) {
    size_t size = KEY;
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private, KEY);
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, public, KEY);
    EVP_PKEY_CTX *context = own ? EVP_PKEY_CTX_new(own, NULL) : NULL;
    bool is_good = peer && context && EVP_PKEY_derive_init(context) > 0 && EVP_PKEY_derive_set_peer(context, peer) > 0 &&
                   EVP_PKEY_derive(context, secret, &size) > 0 && size == KEY;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
    return is_good;
}

bool is_signed(struct span signing_key, const char *purpose, struct span text, struct span signature) {
    uint8_t signed_text[DATAGRAM_MAX + 64];
    struct out whole = {signed_text, sizeof signed_text, 0, false};
    put(&whole, span_of(purpose));
    put(&whole, text);
    if (whole.is_full || signing_key.size != KEY || signature.size != SIGNATURE)
        return false;
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, signing_key.at, KEY);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_good = key && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) > 0 &&
                   EVP_DigestVerify(context, signature.at, SIGNATURE, whole.at, whole.used) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    return is_good;
}

/* ---- AES-256-GCM, nonce four zero bytes and the counter ---- */

static bool set_key(EVP_CIPHER_CTX *cipher, const uint8_t key[KEY]) {
    return EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, NULL, 1);
}

static bool run_cipher(EVP_CIPHER_CTX *cipher, bool seals, uint64_t counter, struct span beside, struct span from, uint8_t *to) {
    uint8_t nonce[12] = {0};
    struct out place = {nonce + 4, 8, 0, false};
    int size;
    put_big(&place, counter, 8);
    return EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, seals) &&
           (beside.size == 0 || EVP_CipherUpdate(cipher, NULL, &size, beside.at, (int)beside.size)) &&
           EVP_CipherUpdate(cipher, to, &size, from.at, (int)from.size);
}

static bool seal(EVP_CIPHER_CTX *cipher, uint64_t counter, struct span beside, struct span plain, struct out *out) {
    int size;
    if (out->is_full || out->size - out->used < plain.size + MAC)
        return false;
    uint8_t *to = out->at + out->used, *tag = to + plain.size;
    out->used += plain.size + MAC;
    return run_cipher(cipher, true, counter, beside, plain, to) && EVP_CipherFinal_ex(cipher, tag, &size) &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, MAC, tag);
}

static bool unseal(EVP_CIPHER_CTX *cipher, uint64_t counter, struct span beside, struct span sealed, struct out *out) {
    uint8_t tag[MAC];
    int size;
    if (sealed.size < MAC || out->size - out->used < sealed.size - MAC)
        return false;
    struct span text = {sealed.at, sealed.size - MAC};
    uint8_t *to = out->at + out->used;
    memcpy(tag, text.at + text.size, MAC);
    out->used += text.size;
    return run_cipher(cipher, false, counter, beside, text, to) && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, MAC, tag) &&
           EVP_CipherFinal_ex(cipher, to + text.size, &size) > 0;
}

/* ---- the handshake ---- */

static bool mix_hash(struct handshake *h, struct span text) {
    return hash((struct span){h->hash, KEY}, text, h->hash);
}

static bool mix_key(struct handshake *h, const uint8_t private[KEY], const uint8_t public[KEY]) {
    uint8_t secret[KEY];
    if (!exchange(private, public, secret))
        return false;
    derive_two(h->chain, (struct span){secret, KEY}, h->chain, h->key);
    OPENSSL_cleanse(secret, sizeof secret);
    return true;
}

/* Every key of this pattern encrypts once before the next is mixed in, so the Noise counter is always 0. */
static bool mix_sealed(struct handshake *h, bool seals, struct span from, struct out *out) {
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    size_t begun = out->used;
    bool is_good = cipher && set_key(cipher, h->key) &&
                   (seals ? seal : unseal)(cipher, 0, (struct span){h->hash, KEY}, from, out) &&
                   mix_hash(h, seals ? (struct span){out->at + begun, out->used - begun} : from);
    EVP_CIPHER_CTX_free(cipher);
    return is_good;
}

/* Noise message 1: e, es, s, ss and the payload. own, ephemeral and edge are set already. */
bool write_first(struct handshake *h, struct span payload, struct out *out) {
    uint8_t ephemeral[KEY], own[KEY];
    memset(h->hash, 0, KEY);
    memcpy(h->hash, "Noise_IK_25519_AESGCM_SHA256", 28);
    memcpy(h->chain, h->hash, KEY);
    if (!public_key(h->ephemeral, ephemeral) || !public_key(h->own, own))
        return false;
    put(out, (struct span){ephemeral, KEY});
    return mix_hash(h, span_of("milepost 1")) && mix_hash(h, (struct span){h->edge, KEY}) &&
           mix_hash(h, (struct span){ephemeral, KEY}) && mix_key(h, h->ephemeral, h->edge) &&
           mix_sealed(h, true, (struct span){own, KEY}, out) && mix_key(h, h->own, h->edge) &&
           mix_sealed(h, true, payload, out) && !out->is_full;
}

/* Noise message 2: e, ee, se and the payload. A forged one leaves the handshake unchanged: the genuine one may still arrive. */
bool read_second(struct handshake *handshake, struct span ack, struct out *payload, struct keys *keys) {
    struct handshake h = *handshake;
    uint8_t to_edge[KEY], to_endpoint[KEY];
    if (ack.size < 1 + KEY + MAC || ack.at[0] != OUTER_ACK)
        return false;
    const uint8_t *theirs = ack.at + 1;
    bool is_good = mix_hash(&h, (struct span){theirs, KEY}) && mix_key(&h, h.ephemeral, theirs) && mix_key(&h, h.own, theirs) &&
                   mix_sealed(&h, false, (struct span){theirs + KEY, ack.size - 1 - KEY}, payload);
    if (is_good) {
        derive_two(h.chain, (struct span){NULL, 0}, to_edge, to_endpoint);
        is_good = set_key(keys->send, to_edge) && set_key(keys->receive, to_endpoint);
        keys->counter = 0;
        keys->window = (struct window){0};
        *handshake = h;
    }
    OPENSSL_cleanse(&h, sizeof h);
    OPENSSL_cleanse(to_edge, KEY);
    OPENSSL_cleanse(to_endpoint, KEY);
    return is_good;
}

/* mac1, and mac2 with the cookie; zeros without a cookie. */
void write_macs(const uint8_t edge[KEY], const uint8_t *cookie, struct out *init) {
    uint8_t key[KEY], mac1[KEY], mac2[KEY] = {0};
    hash(span_of("milepost mac1"), (struct span){edge, KEY}, key);
    hmac((struct span){key, KEY}, (struct span){init->at, init->used}, mac1);
    put(init, (struct span){mac1, MAC});
    if (cookie)
        hmac((struct span){cookie, MAC}, (struct span){init->at, init->used}, mac2);
    put(init, (struct span){mac2, MAC});
}

bool open_cookie(const uint8_t edge[KEY], struct span init, struct span datagram, uint8_t cookie[MAC]) {
    uint8_t root[KEY], key[KEY];
    if (datagram.size != 1 + MAC + 2 * MAC || datagram.at[0] != OUTER_COOKIE || init.size < 2 * MAC)
        return false;
    hmac((struct span){datagram.at + 1, MAC}, (struct span){edge, KEY}, root);
    hmac((struct span){root, KEY}, span_of("milepost cookie\x01"), key);
    struct span mac1 = {init.at + init.size - 2 * MAC, MAC};
    struct out out = {cookie, MAC, 0, false};
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    bool is_good = cipher && set_key(cipher, key) && unseal(cipher, 0, mac1, (struct span){datagram.at + 1 + MAC, 2 * MAC}, &out);
    EVP_CIPHER_CTX_free(cipher);
    return is_good;
}

/* ---- DATA ---- */

bool seal_data(struct keys *keys, struct span plain, struct out *out) {
    put_big(out, OUTER_DATA, 1);
    put_token(out, keys->token);
    put_big(out, keys->counter, 8);
    return seal(keys->send, keys->counter++, (struct span){NULL, 0}, plain, out);
}

bool is_new(const struct window *window, uint64_t counter) {
    return counter >= window->next || (window->next - 1 - counter < WINDOW && !window->taken[counter % WINDOW]);
}

void mark_taken(struct window *window, uint64_t counter) {
    if (counter >= window->next) {
        if (counter - window->next >= WINDOW)
            memset(window->taken, 0, sizeof window->taken);
        else
            for (uint64_t passed = window->next; passed < counter; passed++)
                window->taken[passed % WINDOW] = false;
        window->next = counter + 1;
    }
    window->taken[counter % WINDOW] = true;
}

bool open_data(struct keys *keys, struct span datagram, struct out *plain) {
    if (datagram.size < DATA_HEAD || datagram.at[0] != OUTER_DATA || get_token(datagram.at + 1) != keys->token)
        return false;
    uint64_t counter = get_big(datagram.at + 9, 8);
    struct span sealed = {datagram.at + DATA_HEAD, datagram.size - DATA_HEAD};
    if (counter == UINT64_MAX || !is_new(&keys->window, counter) ||
        !unseal(keys->receive, counter, (struct span){NULL, 0}, sealed, plain))
        return false;
    mark_taken(&keys->window, counter);
    return true;
}

bool is_reset(struct span datagram, uint64_t token, const uint8_t reset[MAC]) {
    return datagram.size == 9 + MAC && datagram.at[0] == OUTER_RESET && get_token(datagram.at + 1) == token &&
           CRYPTO_memcmp(datagram.at + 9, reset, MAC) == 0;
}

/* ---- certificates, ASK and HERE ---- */

static bool read_body(struct span body, struct certificate *certificate) {
    struct in in = {body, false};
    struct field field;
    *certificate = (struct certificate){0};
    while (next_field(&in, &field))
        switch (field.key) {
        case FIELD(1, BYTES): certificate->id = field.bytes; break;
        case FIELD(2, BYTES): certificate->role = field.bytes; break;
        case FIELD(3, BYTES): certificate->key = field.bytes; break;
        case FIELD(4, FIXED64): certificate->not_before = field.value; break;
        case FIELD(5, FIXED64): certificate->not_after = field.value; break;
        case FIELD(7, BYTES): certificate->signing_key = field.bytes; break;
        }
    return !in.is_bad && certificate->id.size >= 1 && certificate->id.size <= ID_MAX && certificate->key.size == KEY;
}

/* Whether the certificate is signed by the certificate authority and valid now. */
bool read_certificate(struct span bytes, const uint8_t authority[KEY], uint64_t now, struct certificate *certificate) {
    struct in in = {bytes, bytes.size > CERTIFICATE_MAX};
    struct span body = {0}, signature = {0};
    struct field field;
    while (next_field(&in, &field))
        switch (field.key) {
        case FIELD(1, BYTES): body = field.bytes; break;
        case FIELD(2, BYTES): signature = field.bytes; break;
        }
    return !in.is_bad && is_signed((struct span){authority, KEY}, "milepost certificate", body, signature) &&
           read_body(body, certificate) && certificate->not_before <= now && now <= certificate->not_after;
}

void write_ask(const uint8_t nonce[MAC], double latitude, double longitude, struct out *out) {
    uint64_t bits[2];
    memcpy(&bits[0], &latitude, 8);
    memcpy(&bits[1], &longitude, 8);
    put_big(out, OUTER_ASK, 1);
    put(out, (struct span){nonce, MAC});
    put_big(out, bits[0], 8);
    put_big(out, bits[1], 8);
    while (out->used < ASK_SIZE && !out->is_full)
        put_big(out, 0, 1);
}

bool read_here(struct span datagram, const uint8_t nonce[MAC], const uint8_t authority[KEY], uint64_t now,
               uint16_t *port, struct certificate *edge) {
    const size_t head = 1 + MAC + 4;
    if (datagram.size < head + SIGNATURE || datagram.at[0] != OUTER_HERE || memcmp(datagram.at + 1, nonce, MAC) != 0)
        return false;
    struct span certificate = {datagram.at + head, (size_t)get_big(datagram.at + head - 2, 2)};
    if (datagram.size != head + certificate.size + SIGNATURE)
        return false;
    struct span text = {datagram.at, head + certificate.size};
    *port = (uint16_t)get_big(datagram.at + head - 4, 2);
    return read_certificate(certificate, authority, now, edge) && is_equal(edge->role, span_of("edge")) &&
           is_signed(edge->signing_key, "milepost here", text, (struct span){text.at + text.size, SIGNATURE});
}
