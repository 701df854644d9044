"""Owns the encryption of secrets: AES-256-GCM, with the keys that the settings name.

A sealed secret is `KEY.DATA`: the id of its key, and base64 of a nonce and the ciphertext.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any

from windlass.core.errors import ConfigError
from windlass.settings import EncryptionKey

_NONCE_BYTES = 12
_NO_KEY = (
    "set WINDLASS_ENCRYPTION_KEYS, for producers and workers, to the output of `windlass keys new`"
)


class Encryption:
    """Seals and opens secrets. The first key seals, and every key opens what it has sealed."""

    def __init__(self, keys: Callable[[], Sequence[EncryptionKey]]) -> None:
        self._keys = keys

    def check(self, what: str) -> None:
        """Make sure that secrets can be sealed and opened here.

        Raises:
            ConfigError: there is no key, or the package `cryptography` is not installed.
        """
        if not self._keys():
            raise ConfigError(f"{what}, but no encryption key is configured; {_NO_KEY}")
        _aes_gcm(self._keys()[0])

    def seal(self, plain: bytes, *, bound: bytes) -> str:
        """Encrypt with the first key.

        Raises:
            ConfigError: there is no key, or the package `cryptography` is not installed.
        """
        self.check("storing a Secret needs a key")
        key = self._keys()[0]
        # Random: 2^32 secrets under one key are safe, and no two processes have to agree.
        nonce = os.urandom(_NONCE_BYTES)
        data = nonce + _aes_gcm(key).encrypt(nonce, plain, bound)
        return f"{key.id}.{b64encode(data).decode()}"

    def is_current(self, sealed: str) -> bool:
        """Return whether the first key has sealed it."""
        return sealed.partition(".")[0] == self._keys()[0].id

    def open(self, sealed: str, *, bound: bytes) -> bytes:
        """Decrypt with the key that sealed it.

        Raises:
            ValueError: that key is not here, or it was not sealed by it for this.
        """
        key_id, _, text = sealed.partition(".")
        key = next((each for each in self._keys() if each.id == key_id), None)
        if key is None:
            here = ", ".join(each.id for each in self._keys()) or "none"
            raise ValueError(
                f"it is encrypted with key {key_id[:32]!r}, which is not configured here "
                f"(configured: {here}); add it to WINDLASS_ENCRYPTION_KEYS, then redrive the job"
            )
        try:
            data = b64decode(text, validate=True)
            plain: bytes = _aes_gcm(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        except (binascii.Error, ValueError, _invalid_tag()):
            raise ValueError(
                f"it cannot be decrypted with key {key.id!r}: this is another key of the same "
                "name, or the secret was altered or belongs to another kind"
            ) from None
        return plain


def _aes_gcm(key: EncryptionKey) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigError(
            "secrets need the cryptography package: pip install 'windlass[encryption]'"
        ) from error
    return AESGCM(key.key)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
