"""Owns which protobuf messages a payload or a result may have, by its type hints."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.payloads.protobuf.forms import (
    NO_MESSAGES,
    Messages,
    Protobuf,
    is_message_class,
    json_format,
)

_REST_OF_A_TYPE = ("__value__", "__supertype__", "__bound__")
"""What an alias, a NewType and a TypeVar stand for."""


def messages_in(hint: Any) -> Messages:
    """Return the message classes of a type, wherever they are in it.

    Raises:
        ConfigError: one of them is the base of all messages, two have the same name, protobuf is
            not installed, or `Protobuf(...)` annotates something else.
    """
    try:
        return _cached(hint)
    except TypeError:  # Not hashable, like metadata that is a list.
        return _found(hint)


@lru_cache(maxsize=10_000)
def _cached(hint: Any) -> Messages:
    return _found(hint)


def _found(hint: Any) -> Messages:
    classes: dict[str, type[Any]] = {}
    binary: set[str] = set()
    for cls, marks in _classes(hint):
        name = _name(cls)
        if classes.setdefault(name, cls) is not cls:
            raise ConfigError(
                f"two classes of the message {name} are in one payload; import it from one module"
            )
        if any(mark.binary for mark in marks):
            binary.add(name)
    return Messages(classes, frozenset(binary)) if classes else NO_MESSAGES


def _name(cls: Any) -> str:
    if cls.DESCRIPTOR is None:
        raise ConfigError(
            f"a message must be of a class that was made from a .proto file, got "
            f"{cls.__qualname__}, the base of all of them; name the class"
        )
    json_format(cls)
    return str(cls.DESCRIPTOR.full_name)


def _classes(hint: Any) -> Iterator[tuple[type[Any], tuple[Protobuf, ...]]]:
    """Yield each message class, and how it is annotated."""
    waiting: list[Any] = [hint]
    seen: dict[int, Any] = {}  # With the hints: some are made when asked for, and an id is reused.
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if get_origin(each) is Annotated:
            inner, *marks = get_args(each)
            own = tuple(mark for mark in marks if isinstance(mark, Protobuf))
            if own and is_message_class(inner):
                yield inner, own
                continue
            if own:
                shown = getattr(inner, "__qualname__", inner)
                raise ConfigError(
                    f"Protobuf(...) must annotate a class of messages, got {shown}; write it where "
                    "the class is, like list[Annotated[SendEmail, Protobuf(binary=True)]]"
                )
            waiting.append(inner)
        elif is_message_class(each):
            yield each, ()
        else:
            waiting.extend(_parts(each))


def _parts(hint: Any) -> Iterator[Any]:
    yield from get_args(hint)
    yield from (rest for name in _REST_OF_A_TYPE if (rest := getattr(hint, name, None)))
    cls = get_origin(hint) or hint
    if isinstance(cls, type) and _has_fields(cls):
        try:
            yield from typing.get_type_hints(cls, include_extras=True).values()
        except (NameError, TypeError):
            return  # The codec decides whether it can be a payload at all.


def _has_fields(cls: type[Any]) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, msgspec.Struct)
        or typing.is_typeddict(cls)
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
