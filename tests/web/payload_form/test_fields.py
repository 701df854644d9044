"""The form of a payload: what has a field of its own, what is JSON, and that nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from windlass import Windlass
from windlass.core.payloads.secret import MARK
from windlass.web.payload_form.fields import MAX_FIELDS, Field, field_at, fields_of
from windlass.web.payload_form.names import input_name, read_name
from windlass.web.payload_form.reading import FieldInvalid, payload_in


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(msgspec.Struct):
    city: str
    zip: int | None = None
    floor: int = 0


class Line(msgspec.Struct):
    sku: str
    count: int


async def order(
    to: Annotated[str, msgspec.Meta(min_length=1, description="Who gets it.")],
    count: int,
    price: float,
    express: bool,
    colour: Colour,
    size: Literal["s", "m"],
    address: Address,
    day: date,
    at: datetime | None = None,
    note: str | None = None,
    greeting: str = "hello",
    either: str | int = 3,
    lines: list[Line] = [],  # noqa: B006
    other: Address | None = None,
    anything: Any = None,
) -> None: ...


FULL: dict[str, Any] = {
    "to": "ada",
    "count": 3,
    "price": 1.5,
    "express": True,
    "colour": "blue",
    "size": "m",
    "address": {"city": "Rome", "zip": None, "floor": 2},
    "day": "2026-03-01",
    "at": "2026-03-01T09:00:00Z",
    "note": "two\nlines",
    "greeting": "",
    "either": "x",
    "lines": [{"sku": "a", "count": 1}],
    "other": None,
    "anything": {"deep": [1, 2.5, None]},
}


def _fields(payload: Any, handler: Any = order) -> tuple[Field, ...] | None:
    app = Windlass("memory://")
    app.job(name="order")(handler)
    target = app.registry["order"].target
    return fields_of(target.codec.json_schema(), payload, target.defaults)


def _sent(fields: tuple[Field, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a browser sends for a form that nobody changed."""
    for each in fields:
        yield each.name, "1" if each.kind == "group" else each.value
        if each.empties:
            yield each.empty_name, each.empties[0][0]
        yield from _sent(each.children)


def _again(payload: Any) -> Any:
    fields = _fields(payload)
    assert fields is not None
    return payload_in(dict(_sent(fields)))


def _kinds(fields: tuple[Field, ...] | None) -> dict[str, str]:
    return {".".join(each.path): each.kind for each in fields or ()}


def test_plain_types_have_fields_and_everything_else_is_json() -> None:
    assert _kinds(_fields(FULL)) == {
        "to": "text",
        "count": "number",
        "price": "number",
        "express": "choice",
        "colour": "choice",
        "size": "choice",
        "address": "group",
        "day": "text",
        "at": "text",
        "note": "text",
        "greeting": "text",
        "either": "json",
        "lines": "json",
        "other": "group",
        "anything": "json",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"note": None},
        {"note": ""},
        {"note": " padded "},
        {"note": "\nbegins with a line"},
        {"note": "carriage\r\nreturn"},
        {"note": "\u202ebidi\x1b"},
        {"greeting": "ä𝄞"},
        {"price": 3},
        {"price": 1e300},
        {"count": 12345678901234567890123},
        {"count": "three"},
        {"count": True},
        {"count": None},
        {"express": "yes"},
        {"express": None},
        {"colour": "green"},
        {"to": None},
        {"to": 7},
        {"day": "tomorrow"},
        {"address": None},
        {"address": "Rome"},
        {"address": {}},
        {"address": {"city": ""}},
        {"address": {"city": "Rome", "unknown": [1]}},
        {"other": {"city": ""}},
        {"other": {"city": "Bonn", "zip": 53111, "floor": 0}},
        {"other": {}},
        {"unknown": {"x": 1}, "a.b~c": 2},
        {"to": {MARK: "sealed"}},
        {"anything": None},
        {"anything": ""},
        {"anything": "null"},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_a_form_that_nobody_changed_is_the_same_payload(changes: dict[str, Any]) -> None:
    assert _again(FULL | changes) == FULL | changes


@pytest.mark.parametrize("name", FULL)
def test_a_field_that_was_not_given_is_not_given_again(name: str) -> None:
    payload = {each: value for each, value in FULL.items() if each != name}
    again = _again(payload)
    # A group that has to be given is an object, whatever is in it.
    assert again == ({**payload, "address": {}} if name == "address" else payload)


def test_an_optional_group_with_a_typed_field_is_given() -> None:
    fields = _fields({**FULL, "other": None})
    assert fields is not None
    sent = dict(_sent(fields))
    sent[input_name("text", ("other", "city"))] = "Bonn"
    assert payload_in(sent)["other"] == {"city": "Bonn"}
    assert payload_in(sent | {input_name("if", ("other",)): "absent"})["other"] == {"city": "Bonn"}


def test_an_empty_field_means_what_the_choice_beside_it_says() -> None:
    fields = _fields(FULL)
    assert fields is not None
    blank = dict(_sent(fields)) | {input_name("text", ("note",)): ""}
    meaning = input_name("if", ("note",))
    assert "note" not in payload_in(blank | {meaning: "absent"})
    assert payload_in(blank | {meaning: "null"})["note"] is None
    assert payload_in(blank | {meaning: "empty"})["note"] == ""


@pytest.mark.parametrize(
    ("kind", "path", "text", "reason"),
    [
        ("number", ("count",), "seven", "a number is expected"),
        ("number", ("count",), "true", "a number is expected"),
        ("number", ("count",), "NaN", "a number is expected"),
        ("json", ("lines",), "[1,", "it is not JSON"),
        ("rest", (), "[1]", "must be a JSON object"),
    ],
)
def test_an_input_that_cannot_be_read_is_named(
    kind: Any, path: tuple[str, ...], text: str, reason: str
) -> None:
    with pytest.raises(FieldInvalid, match=reason) as caught:
        payload_in({input_name(kind, path): text})
    assert caught.value.field == ".".join(path)


@pytest.mark.parametrize(
    ("place", "reason", "path"),
    [
        ("count", "", ("count",)),
        ("address.city", "", ("address", "city")),
        ("address", "Object missing required field `city`", ("address", "city")),
        ("address", "Object contains unknown field `x`", ("address",)),
        ("lines[0].count", "", ("lines",)),
        ("unknown", "Object contains unknown field `unknown`", ()),
    ],
)
def test_an_error_leads_to_its_field(place: str, reason: str, path: tuple[str, ...]) -> None:
    fields = _fields({**FULL, "unknown": 1})
    assert fields is not None
    found = field_at(fields, place, reason)
    assert found is not None
    assert found.path == path


def test_hints_say_what_a_field_takes() -> None:
    hints = {each.label: each.hint for each in _fields(FULL) or ()}
    assert hints["to"] == "Who gets it. At least 1 characters."
    assert "2026-03-01" in hints["day"]


def test_the_default_of_the_handler_is_what_a_field_that_is_not_given_means() -> None:
    greeting = next(each for each in _fields({}) or () if each.label == "greeting")
    assert greeting.empties[0] == ("absent", "not given: hello")


@pytest.mark.parametrize("payload", [[1], "text", None, 3])
def test_a_payload_that_is_no_object_has_no_form(payload: Any) -> None:
    assert _fields(payload) is None


def test_a_payload_of_too_many_fields_has_no_form() -> None:
    assert _fields({f"unknown{n}": n for n in range(MAX_FIELDS)}) is not None
    schema = {"type": "object", "properties": {str(n): {} for n in range(MAX_FIELDS + 1)}}
    assert fields_of(schema, {}) is None


def test_a_type_that_contains_itself_ends_in_json() -> None:
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
        },
    }
    fields = fields_of(schema, {})
    depth = 0
    while fields:
        (field,) = fields
        fields, depth = field.children, depth + 1
    assert field.kind == "json"
    assert depth == 4


@pytest.mark.parametrize("path", [("a",), ("a.b", "c~d"), ("~1",), ("",), ()])
def test_the_name_of_an_input_holds_any_path(path: tuple[str, ...]) -> None:
    assert read_name(input_name("text", path)) == ("text", path)
