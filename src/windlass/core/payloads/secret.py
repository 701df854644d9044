"""Owns `Secret`: a value that shows itself to nobody by accident, and how it is sealed for a store.

The cipher is given from outside: it needs keys and randomness, and the core has neither.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import Struct

from windlass.core.payloads.protobuf.forms import is_message, parts_of

T_co = TypeVar("T_co", covariant=True)
SHOWN = "Secret(***)"
MARK = "$secret"
"""The one field of the object that stands for a secret in JSON."""


class Secret(Generic[T_co]):
    """A value that is encrypted in the store, and that nothing shows unless it is asked to.

    Example:
        `def charge(card: Secret[str]) -> None: pay(card.reveal())`, and
        `charge.enqueue(card=Secret("4111..."))`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def reveal(self) -> T_co:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        """Show that there is a secret, and nothing of it."""
        return SHOWN

    def __format__(self, _spec: str) -> str:
        """Show the same whatever the format asks for: even a width would reveal a length."""
        return SHOWN

    def __eq__(self, other: object) -> bool:
        """Compare the hidden values, with another secret only."""
        return isinstance(other, Secret) and bool(self._value == other._value)

    def __hash__(self) -> int:
        """Hash the hidden value; unhashable ones, like a dict, share one hash."""
        try:
            return hash((Secret, self._value))
        except TypeError:
            return hash(Secret)


class Cipher(Protocol):
    """Seals bytes so that only holders of the key can open them, in the same binding only.

    `seal` raises ConfigError if it cannot; `open` raises ValueError, with a reason that reveals
    nothing of the content.
    """

    def seal(self, plain: bytes, *, bound: bytes) -> str:
        """Return the text that is stored in place of the bytes."""
        ...

    def open(self, sealed: str, *, bound: bytes) -> bytes:
        """Return the bytes that were sealed."""
        ...


class Sealing(Struct, frozen=True):
    """How the secrets in the payloads, results or steps of one kind are written and read.

    A secret that is sealed for one kind opens for no other: copied into another job's row, it
    cannot be read there.
    """

    cipher: Cipher
    role: Literal["payload", "result", "step"]
    kind: str

    @property
    def bound(self) -> bytes:
        """The binding of a secret: it opens for nothing else."""
        return f"windlass:{self.role}:{self.kind}".encode()

    def seal(self, plain: bytes) -> dict[str, str]:
        """Return the JSON object that stands for a secret."""
        return {MARK: self.cipher.seal(plain, bound=self.bound)}

    def open(self, value: Any) -> bytes:
        """Return the value of a secret's JSON object.

        Raises:
            ValueError: it is no such object, or cannot be opened.
        """
        if not isinstance(value, dict) or not isinstance(value.get(MARK), str) or len(value) != 1:
            raise ValueError("a Secret is expected; write Secret(...), which is stored encrypted")
        return self.cipher.open(value[MARK], bound=self.bound)


def is_secret(hint: Any) -> bool:
    return hint is Secret or get_origin(hint) is Secret


def hidden_type(hint: Any) -> Any:
    """Return the type that a `Secret[...]` hides; Any, if it does not say."""
    return next(iter(get_args(hint)), Any)


def holds_secrets(hint: Any) -> bool:
    waiting: list[Any] = [_described(hint)]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, msgspec.inspect.CustomType) and is_secret(each.cls):
            return True
        if isinstance(each, tuple):
            waiting.extend(each)
        elif isinstance(each, _DESCRIPTIONS) and id(each) not in seen:
            seen.add(id(each))
            waiting.extend(getattr(each, name) for name in each.__struct_fields__)
    return False


_DESCRIPTIONS = (msgspec.inspect.Type, msgspec.inspect.Field)


def _described(hint: Any) -> Any:
    try:
        return msgspec.inspect.type_info(hint)
    except (TypeError, ValueError):
        return None  # The codec decides whether it can be a payload at all.


def secrets_in(value: Any) -> Iterator[Secret[Any]]:
    """Find the secrets in a handler's arguments, wherever they are."""
    # With the values: parts of messages are made when asked for, and an id is given again.
    waiting, seen = [value], dict[int, Any]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, _LEAVES) or id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, Secret):
            yield each
        waiting.extend(_parts(each))


_TELLING = (int, float, Decimal, UUID, date, time, timedelta)
"""Types that are written as one text, and have no parts to search."""
_LEAVES = (str, bytes, bytearray, Enum, type, type(None), *_TELLING)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Secret):
        return [value.reveal()]
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if is_message(value):
        return [*parts_of(value)]
    return [getattr(value, name, None) for name in _attributes(value)]


def _attributes(value: Any) -> Iterator[str]:
    yield from getattr(value, "__dict__", ())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def texts_of(secret: Secret[Any]) -> Iterator[str]:
    """Yield the texts by which a secret would be recognised in other text."""
    waiting, seen = [secret.reveal()], dict[int, Any]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, Enum):
            waiting.append(each.value)
        elif isinstance(each, str):
            yield each
        elif isinstance(each, bytes | bytearray):
            yield from (each.decode(errors="replace"), repr(bytes(each))[2:-1])
            yield b64encode(each).decode()
        elif isinstance(each, _TELLING) and not isinstance(each, bool):
            yield str(each)
        elif isinstance(each, dict):
            waiting.extend(each.values())  # The names of fields would be masked everywhere.
        elif not isinstance(each, _LEAVES) and id(each) not in seen:
            seen[id(each)] = each
            waiting.extend(_parts(each))
