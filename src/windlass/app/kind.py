"""Owns `Kind`: a kind declared by itself, for producers that do not import its handler."""

from __future__ import annotations

from typing import Generic, TypeVar

from windlass.core.keys import Key, checked_key
from windlass.core.names import check_name
from windlass.core.unique import Unique, identity_of

PayloadT = TypeVar("PayloadT")


class Kind(Generic[PayloadT]):
    """A stable name and the type of the payload that goes with it.

    `key` is what limits and fairness go by: a field of the payload, or a function of it. So are
    `unique` and `idempotency_key`, which are the same as in `@app.job`.

    Example:
        `SEND_EMAIL = Kind("send_email", Email)`, then `app.of(SEND_EMAIL).enqueue(Email(...))` in
        the producer, and `@app.job(SEND_EMAIL)` on the handler.
    """

    __slots__ = ("idempotency_key", "key", "name", "payload", "unique")

    def __init__(
        self,
        name: str,
        payload: type[PayloadT],
        *,
        key: Key | None = None,
        unique: Key | Unique | None = None,
        idempotency_key: Key | None = None,
    ) -> None:
        self.name = check_name("kind", name)
        self.payload = payload
        self.key = None if key is None else checked_key(name, key, None)
        identity = identity_of(name, unique=unique, idempotency_key=idempotency_key)
        self.unique = identity.unique
        self.idempotency_key = identity.idempotency_key

    def __repr__(self) -> str:
        """Show the kind as it was declared."""
        return f"Kind({self.name!r}, {self.payload.__qualname__})"
