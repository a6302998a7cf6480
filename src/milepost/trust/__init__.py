"""Trust: who somebody is, whether that still holds, and whether nobody else heard or changed what was said (M28).

    certificates, revocations, authority    whose key it is, and until when
    noise, macs, windows                    a sealed session: the handshake, what guards it, what came already
    signing                                 what the system says to everybody at once

No cryptography is invented here: Noise, X25519, Ed25519, AES-GCM, HMAC and HKDF come from `cryptography` and the standard
library. No clock is asked and nothing is drawn at random: `now`, ephemeral keys and salts are arguments.
"""
