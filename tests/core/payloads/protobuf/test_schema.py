"""The JSON schema of a message describes what its JSON mapping writes."""

from __future__ import annotations

from typing import Annotated, Any

from tests.core.payloads.protobuf.shop_messages import Record, SendEmail, codec_of
from tests.support.protobuf_messages import message_classes
from windlass import Protobuf
from windlass.core.payloads.protobuf.schema import message_schema

LONG = {
    "type": "string",
    "pattern": "^-?[0-9]+$",
    "format": "int64",
    "description": "A whole number.",
}


def test_fields_have_the_types_of_their_json() -> None:
    fields = message_schema(SendEmail)["properties"]
    attachment = {
        "type": "object",
        "title": "Attachment",
        "properties": {
            "name": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "parts": {"type": "array", "items": {"type": "object", "title": "Attachment"}},
        },
    }
    assert fields == {
        "to_address": {"type": "string"},
        "tries": LONG,
        "color": {"enum": [0, 1], "description": "0 is NONE, 1 is RED."},
        "files": {"type": "array", "items": attachment},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "text": {"type": "string", "description": "At most one of this and html."},
        "html": {"type": "string", "description": "At most one of this and text."},
        "cover": attachment,
        "ratio": {"type": "number"},
        "share": {"type": "number"},
        "urgent": {"type": "boolean"},
        "by_name": {"type": "object", "additionalProperties": attachment},
    }


def test_messages_of_protobuf_itself_are_described_by_their_own_json() -> None:
    fields = message_schema(Record)["properties"]
    assert fields["at"] == {"type": "string", "format": "date-time"}
    assert fields["limit"] == LONG
    assert fields["extra"] == {"type": "object"}


def test_the_schema_of_a_payload_has_that_of_its_messages() -> None:
    for hint in (SendEmail, Annotated[SendEmail, Protobuf(binary=True)]):
        schema: Any = codec_of(hint).json_schema()
        payload = schema["$defs"]["Payload"]
        assert payload["properties"]["message"] == message_schema(SendEmail)
        assert payload["required"] == ["message"]


def test_required_fields_are_required() -> None:
    login = message_classes(
        {"Login": {"user": "1 required string", "note": "2 string"}}, syntax="proto2"
    )["Login"]
    assert message_schema(login)["required"] == ["user"]


def test_a_schema_that_would_be_too_large_is_cut_off() -> None:
    levels = 8
    wide = {
        f"Level{level}": {
            f"f{number}": f"{number} shop.Level{level + 1}" for number in range(1, 11)
        }
        for level in range(levels)
    } | {f"Level{levels}": {"x": "1 string"}}
    schema = message_schema(message_classes(wide)["Level0"])
    assert len(str(schema)) < 100_000
    assert len(schema["properties"]) == 10
