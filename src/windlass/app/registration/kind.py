"""Owns `Kind`: a kind declared by itself, for producers that do not import its handler."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from windlass.core.jobs.unique import Unique, identity_of
from windlass.core.payloads.protobuf.forms import Protobuf
from windlass.core.policies.keys import Key, checked_key
from windlass.core.values.names import check_name, check_own_name

PayloadT = TypeVar("PayloadT")


class Kind(Generic[PayloadT]):
    """A stable name and the type of the payload that goes with it.

    `key` is what limits and fairness go by: a field of the payload, or a function of it. So are
    `unique` and `idempotency_key`, which are the same as in `@app.job`. `protobuf` says how a
    payload that is a protobuf message is stored.

    Example:
        `SEND_EMAIL = Kind("send_email", Email)`, then `app.enqueue(SEND_EMAIL, Email(...))` where
        jobs are made, and `@app.job(SEND_EMAIL)` on the handler.
    """

    __slots__ = ("idempotency_key", "key", "name", "payload", "unique")
    _check = staticmethod(check_own_name)

    def __init__(
        self,
        name: str,
        payload: type[PayloadT],
        *,
        key: Key | None = None,
        unique: Key | Unique | None = None,
        idempotency_key: Key | None = None,
        protobuf: Protobuf | None = None,
    ) -> None:
        self.name = self._check("kind", name)
        self.payload: Any = payload if protobuf is None else Annotated[payload, protobuf]
        self.key = None if key is None else checked_key(name, key, None)
        identity = identity_of(name, unique=unique, idempotency_key=idempotency_key)
        self.unique = identity.unique
        self.idempotency_key = identity.idempotency_key

    def __repr__(self) -> str:
        """Show the kind as it was declared."""
        payload = getattr(self.payload, "__origin__", self.payload)
        return f"Kind({self.name!r}, {getattr(payload, '__qualname__', payload)})"


class BuiltinKind(Kind[PayloadT]):
    """A kind of Windlass itself, under a name that programs cannot take."""

    __slots__ = ()
    _check = staticmethod(check_name)
