"""Trust: authentication, revocation, confidentiality and integrity (M28).

    certificates, pem               certificates, revocations, the certificate authority, and their files
    noise, cookies, replay_window   an encrypted session: handshake, protection against floods and against replay
    signing                         signed messages of the system to many receivers

No cryptography is invented here: Noise, X25519, Ed25519, AES-GCM, HMAC and HKDF come from `cryptography` and the standard
library. No clock and no randomness is used: `now`, ephemeral keys and salts are arguments.
"""
