"""Owns encryption keys and their text: an optional name, then base64 of 32 bytes.

The first key encrypts; all keys decrypt.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from typing import Any

from msgspec import Struct

SIZE = 32
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


class EncryptionKey(Struct, frozen=True):
    """A key, and the id that marks its ciphertexts. Only the id is ever shown."""

    id: str
    key: bytes

    @classmethod
    def of(cls, key: bytes, name: str = "") -> EncryptionKey:
        """Return a key of 32 random bytes; without a name, its id is a digest.

        Raises: ValueError: the key is not 32 bytes, or the name is not valid.
        """
        if len(key) != SIZE:
            raise ValueError(f"a key must have {SIZE} bytes")
        if name and not _ID.fullmatch(name):
            raise ValueError("a key's name must have at most 32 letters, digits, - and _")
        return cls(name or hashlib.sha256(b"windlass:" + key).hexdigest()[:8], key)

    def __str__(self) -> str:
        return self.id

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]

    def __repr__(self) -> str:
        return f"EncryptionKey(id={self.id!r})"


def read_keys(raw: object) -> tuple[EncryptionKey, ...]:
    """Return the keys in a text or list, in their order.

    Raises:
        ValueError: an item is not a key, or two keys have the same id.
        TypeError: the value is not a list of texts.
    """
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple):
        raise TypeError("not a list of keys")
    keys = [_key(part) for part in parts if part != ""]
    if len({key.id for key in keys}) < len(set(keys)):
        raise ValueError("two keys have the same name")
    return tuple(dict.fromkeys(keys))


def written(key: EncryptionKey, *, named: bool) -> str:
    text = b64encode(key.key).decode()
    return f"{key.id}:{text}" if named else text


def _key(raw: object) -> EncryptionKey:
    if isinstance(raw, EncryptionKey):
        return raw
    if not isinstance(raw, str):
        raise TypeError("no text")
    name, colon, text = raw.strip().rpartition(":")
    if colon and not name:
        raise ValueError("an empty name")
    try:
        key = b64decode(text.strip().translate(_URL_SAFE), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
    return EncryptionKey.of(key, name.strip())


_URL_SAFE = str.maketrans("-_", "+/")
