"""Owns message classes that are made from a description at run time, each schema in its own pool.

A field is written like `"3 repeated string"`, `"4 shop.Color"`, `"5 map string int32"` or
`"6 string in body"`, where `body` is a oneof.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

_LIBRARY = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_Field = descriptor_pb2.FieldDescriptorProto
Fields = Mapping[str, str]


def message_classes(
    messages: Mapping[str, Fields],
    enums: Mapping[str, Mapping[str, int]] | None = None,
    *,
    package: str = "shop",
    syntax: str = "proto3",
) -> dict[str, Any]:
    """Return the classes of the messages of one schema, by name."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package=package, syntax=syntax)
    for library in _LIBRARY:
        pool.AddSerializedFile(library.DESCRIPTOR.serialized_pb)
        file.dependency.append(library.DESCRIPTOR.name)
    for name, values in (enums or {}).items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    named = {f"{package}.{name}" for name in enums or ()}
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, written in fields.items():
            _add(message, f"{package}.{name}", field, written.split(), named)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


def _add(message: Any, owner: str, name: str, words: list[str], enums: set[str]) -> None:
    number, *words = words
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if words[-2:-1] == ["in"]:
        *words, _, oneof = words
        if oneof not in [each.name for each in message.oneof_decl]:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = [each.name for each in message.oneof_decl].index(oneof)
    if words[0] in ("repeated", "required"):
        field.label = {"repeated": _Field.LABEL_REPEATED, "required": _Field.LABEL_REQUIRED}[
            words.pop(0)
        ]
    if words[0] == "map":
        entry = message.nested_type.add(name="".join(map(str.title, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add(entry, owner, "key", ["1", words[1]], enums)
        _add(entry, owner, "value", ["2", words[2]], enums)
        field.label = _Field.LABEL_REPEATED
        words = [f"{owner}.{entry.name}"]
    if "." not in words[0]:
        field.type = _Field.Type.Value(f"TYPE_{words[0].upper()}")
        return
    field.type = _Field.TYPE_ENUM if words[0] in enums else _Field.TYPE_MESSAGE
    field.type_name = f".{words[0]}"
