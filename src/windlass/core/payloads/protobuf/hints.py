"""Owns which protobuf messages a payload or a result may have, by its type hints."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType

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
_UNIONS = (Union, UnionType)
_PYDANTIC_SCHEMA = "__get_pydantic_core_schema__"
"""The method of annotations by which pydantic reads and writes what it does not know."""


def messages_in(hint: Any) -> Messages:
    """Return the message classes of a type, wherever they are in it.

    Raises:
        ConfigError: one of them is the base of all messages, has alternatives in a union, or is in
            a pydantic model without `Protobuf(...)`; two have the same name; protobuf is not
            installed; or `Protobuf(...)` annotates something else.
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
    """Yield each message class, and how it is annotated.

    Raises:
        ConfigError: one is where it cannot be read again, or an annotation is in the wrong place.
    """
    waiting: list[tuple[Any, str]] = [(hint, "")]
    seen: dict[tuple[int, str], Any] = {}  # With the hints: some are made anew, at a reused id.
    while waiting:
        each, model = waiting.pop()
        if (id(each), model) in seen:
            continue
        seen[id(each), model] = each
        if get_origin(each) in _UNIONS:
            _check_union(each)
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
            if not (model and any(hasattr(mark, _PYDANTIC_SCHEMA) for mark in marks)):
                waiting.append((inner, model))
        elif is_message_class(each):
            if model:
                raise ConfigError(
                    f"{each.__qualname__} in the pydantic model {model} must be annotated, since "
                    f"pydantic does not know messages; write Annotated[{each.__qualname__}, "
                    "Protobuf()], with Protobuf from windlass"
                )
            yield each, ()
        else:
            below = each.__qualname__ if _is_model(each) else model
            waiting.extend((part, below) for part in _parts(each))


def _check_union(union: Any) -> None:
    """Raise for a message with an alternative: a payload has its fields, and not its type."""
    members = [each for each in get_args(union) if each not in (NoneType, UnsetType)]
    messages = [each for each in map(_bare, members) if is_message_class(each)]
    if messages and len(members) > 1:
        names = " | ".join(getattr(each, "__qualname__", str(each)) for each in map(_bare, members))
        raise ConfigError(
            f"a message must be the only type where it is expected, got {names}, of which a "
            "payload does not say which it is; use one message with a oneof, or a parameter or "
            f"field for each: {messages[0].__qualname__} | None"
        )


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _parts(hint: Any) -> Iterator[Any]:
    yield from get_args(hint)
    yield from (rest for name in _REST_OF_A_TYPE if (rest := getattr(hint, name, None)))
    cls = get_origin(hint) or hint
    if _is_model(cls):
        for field in cls.model_fields.values():
            yield (
                Annotated[field.annotation, *field.metadata]
                if field.metadata
                else (field.annotation)
            )
    elif isinstance(cls, type) and _has_fields(cls):
        try:
            yield from typing.get_type_hints(cls, include_extras=True).values()
        except (NameError, TypeError):
            return  # The codec decides whether it can be a payload at all.


def _is_model(cls: Any) -> bool:
    # By what a model has: pydantic is not imported here.
    return isinstance(cls, type) and isinstance(getattr(cls, "model_fields", None), dict)


def _has_fields(cls: type[Any]) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, msgspec.Struct)
        or typing.is_typeddict(cls)
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
