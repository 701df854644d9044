"""Owns the fields of protobuf messages as JSON: which values do not fit, and where they are.

The library reads JSON leniently: text in place of a message becomes an empty message, and bytes
that are not base64 become other bytes. Such a payload is refused, not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_LIBRARY = "google.protobuf."
_MAX_DEPTH = 100
"""Levels that protobuf itself reads."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_FAILED = re.compile(r"Failed to parse ([^\s:]+) field: ")
_TYPE_URL = re.compile(r"type_url: (\S+)")
_TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 10: "group", 11: "message", 12: "bytes", 13: "uint32", 14: "enum",
    15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""The numbers of types in descriptors, which are part of the format."""
_JSON_TYPES = {dict: "an object", list: "an array", str: "text", bool: "a bool", type(None): "null"}


class MessageInvalid(ValueError):
    """JSON, or bytes, that are not the message that is expected; `path` leads to the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def type_name(field: Any) -> str:
    """Return the type of a field as its schema has it: `int64`, or the name of a message."""
    named = field.message_type or field.enum_type
    if is_map(field):
        key, value = (named.fields_by_name[part] for part in ("key", "value"))
        return f"map of {type_name(key)} to {type_name(value)}"
    return str(_TYPES[field.type] if named is None else named.full_name)


def _is_repeated(field: Any) -> bool:
    own = getattr(field, "is_repeated", None)  # Since protobuf 6.31, which then warns of `label`.
    return bool(field.label == field.LABEL_REPEATED if own is None else own)


def is_list(field: Any) -> bool:
    return _is_repeated(field) and not is_map(field)


def is_map(field: Any) -> bool:
    entry = field.message_type
    return entry is not None and entry.has_options and bool(entry.GetOptions().map_entry)


def has_own_form(descriptor: Any) -> bool:
    """Return whether the JSON of a message is not made of its fields, like that of a Timestamp."""
    return bool(descriptor.full_name.startswith(_LIBRARY))


def check_fields(descriptor: Any, value: Any, path: str = "", depth: int = 0) -> None:
    """Check the JSON of a message, where the library would read it as another one.

    Raises:
        MessageInvalid: a value does not fit its field.
    """
    if has_own_form(descriptor):
        return
    if depth > _MAX_DEPTH:
        raise MessageInvalid("", f"it is nested more than {_MAX_DEPTH} levels deep")
    if not isinstance(value, dict):
        raise MessageInvalid(path, f"an object is expected, got {_json_type(value)}")
    chosen: dict[str, str] = {}
    for name, given in value.items():
        field = _field(descriptor, name)
        if field is None or given is None:
            continue
        own = f"{path}.{name}" if path else name
        oneof = field.containing_oneof
        if oneof is not None and (other := chosen.setdefault(oneof.name, field.name)) != field.name:
            raise MessageInvalid(own, f"{other} is given, too; {oneof.name} is one of them")
        for inner, each in _values(field, given, own):
            _check_value(field, each, inner, depth)


def invalid_by(descriptor: Any, error: Exception) -> MessageInvalid:
    """Return what an error of the library means, without the values that it quotes."""
    if name := not_imported(error):
        return MessageInvalid("", f"an Any holds a {name}, whose class is not imported here")
    names = [named[1] for named in _FAILED.finditer(str(error))]
    wanted = f"the JSON form of a {descriptor.full_name}"
    known = descriptor
    for name in names:
        field = None if known is None else _field(known, name)
        if field is None:
            break
        wanted = f"{'list of ' * is_list(field)}{type_name(field)}"
        known = field.message_type
    return MessageInvalid(".".join(names), f"{wanted} is expected")


def not_imported(error: Exception) -> str | None:
    """Return the name of the message type that is not known here, if an error says so."""
    found = _TYPE_URL.search(str(error))
    return None if found is None else found[1].rpartition("/")[2]


def _field(descriptor: Any, name: str) -> Any:
    own = descriptor.fields_by_name.get(name)
    return own or next((each for each in descriptor.fields if each.json_name == name), None)


def _values(field: Any, given: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_map(field):
        if not isinstance(given, dict):
            raise MessageInvalid(path, f"an object is expected, got {_json_type(given)}")
        yield from ((f"{path}.{key}", each) for key, each in given.items())
    elif is_list(field):
        if not isinstance(given, list):
            raise MessageInvalid(path, f"an array is expected, got {_json_type(given)}")
        yield from ((f"{path}[{index}]", each) for index, each in enumerate(given))
    else:
        yield path, given


def _check_value(field: Any, value: Any, path: str, depth: int) -> None:
    if is_map(field):
        field = field.message_type.fields_by_name["value"]
    if field.message_type is not None:
        check_fields(field.message_type, value, path, depth + 1)
    elif field.enum_type is not None:
        is_name = isinstance(value, str) and not value.lstrip("-").isdecimal()
        if is_name and value not in field.enum_type.values_by_name:
            raise MessageInvalid(path, f"a value of {field.enum_type.full_name} is expected")
    elif _TYPES[field.type] == "bytes" and not _is_base64(value):
        raise MessageInvalid(path, f"bytes as base64 are expected, got {_json_type(value)}")


def _is_base64(value: Any) -> bool:
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        return False
    return len(value.rstrip("=")) % 4 != 1


def _json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "a number")
