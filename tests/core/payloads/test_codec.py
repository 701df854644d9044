"""The laws of payloads: what fits arrives unchanged, what does not is refused by its field."""

from __future__ import annotations

import inspect
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.payloads.order_types import (
    SHARED,
    Address,
    Basket,
    Colour,
    Options,
    Order,
    Point,
    codec,
    codec_of,
    self_referring,
    with_defaults,
)
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.payloads.codec import PayloadCodec, decode_json, encode_json

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOME_ID = UUID("0199a8a0-0000-7000-8000-000000000001")


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Everything(msgspec.Struct):
    """A struct of mixed types, for the round trip."""

    number: int
    ratio: float
    flag: bool
    text: str
    blob: bytes
    moment: datetime
    day: date
    span: timedelta
    id: UUID
    price: Decimal
    colour: Colour
    level: Level
    maybe: int | None
    either: int | str
    names: list[str]
    counts: dict[str, int]
    pair: tuple[int, str]
    tags: set[str]
    point: Point
    address: Address
    options: Options
    deep: dict[str, list[dict[str, float | None]]]
    mode: Literal["fast", "slow"] = "fast"


# -- what fits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 3),
        (int, 2**70),
        (int, -(2**70)),
        (float, 0.1),
        (bool, True),
        (str, "ünïcödé 漢字 🙂 \x01 \x7f \u2028"),
        (bytes, b"\x00\xff"),
        (None, None),
        (Any, {"a": [1, None, "b", {"c": 0.5}]}),
        (datetime, NOON),
        (date, NOON.date()),
        (timedelta, timedelta(days=2, microseconds=3)),
        (UUID, SOME_ID),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.BLUE),
        (Level, Level.HIGH),
        (Literal["a", "b"], "a"),
        (int | None, None),
        (int | None, 3),
        (datetime | None, NOON),
        (list[int], [1, 2]),
        (list[list[dict[str, int]]], [[{"a": 1}], []]),
        (dict[str, UUID], {"a": SOME_ID}),
        (dict[int, str], {1: "a"}),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (Point, Point(1, 2)),
        (list[Point], [Point(1), Point(2)]),
        (Address, Address("Main St", "123")),
        (Address | None, None),
        (Options, {"size": 1}),
        (Options, {"size": 1, "note": "n"}),
        (Order, Order(number=1, total=2.5)),
        (list[Order], [Order(number=1), Order(number=2)]),
        (Order | None, None),
        (Order | None, Order(number=1)),
        (Basket, Basket(orders=[Order(number=1)])),
    ],
    ids=repr,
)
def test_a_value_that_fits_its_hint_arrives_unchanged(hint: Any, value: Any) -> None:
    one = codec(hint)
    arrived = one.decode(one.encode({"x": value}))
    assert arrived == {"x": value}
    assert type(arrived["x"]) is type(value)
    whole = PayloadCodec("kind", hint, whole=True)
    assert whole.decode(whole.encode(value)) == value


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10)
finite = st.floats(allow_nan=False, allow_infinity=False)

everything = st.builds(
    Everything,
    number=st.integers(),
    ratio=finite,
    flag=st.booleans(),
    text=plain,
    blob=st.binary(max_size=10),
    moment=st.datetimes(timezones=st.just(UTC)),
    day=st.dates(),
    span=st.timedeltas(),
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    maybe=st.none() | st.integers(),
    either=st.integers() | plain,
    names=st.lists(plain, max_size=3),
    counts=st.dictionaries(plain, st.integers(), max_size=3),
    pair=st.tuples(st.integers(), plain),
    tags=st.sets(plain, max_size=3),
    point=st.builds(Point, x=st.integers(), y=st.integers()),
    address=st.builds(Address, street=plain, zip_code=st.none() | plain),
    options=st.fixed_dictionaries({"size": st.integers()}, optional={"note": plain}),
    deep=st.dictionaries(
        plain, st.lists(st.dictionaries(plain, st.none() | finite, max_size=2), max_size=2)
    ),
    mode=st.sampled_from(["fast", "slow"]),
)

EVERYTHING = codec(Everything)


@given(everything)
@settings(max_examples=50)
def test_a_struct_of_mixed_types_survives_the_journey(sent: Everything) -> None:
    assert EVERYTHING.decode(EVERYTHING.encode({"x": sent}))["x"] == sent


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_json_value_survives_where_nothing_is_said_of_its_type(sent: object) -> None:
    one = codec(inspect.Parameter.empty)
    assert one.decode(one.encode({"x": sent})) == {"x": sent}
    assert decode_json(encode_json("the result", sent)) == sent


def test_a_default_needs_no_json_form_and_the_handler_gets_its_own() -> None:
    one = codec_of(with_defaults)
    payload = one.encode({"x": 1})
    assert payload == b'{"x":1}'
    arrived = one.decode(payload)
    assert arrived["x"] == 1
    for name, parameter in inspect.signature(with_defaults).parameters.items():
        if name != "x":
            assert arrived.get(name, parameter.default) is parameter.default


def test_an_argument_wins_over_its_default() -> None:
    one = codec_of(with_defaults)
    arrived = one.decode(one.encode({"x": 1, "names": [1], "order": {"number": 2}}))
    assert (arrived["names"], arrived["order"]) == ([1], Order(number=2))
    assert SHARED == []


@pytest.mark.parametrize("name", ["self", "cls", "kind", "type", "_private", "__secret", "größe"])
def test_a_parameter_may_have_any_name_or_is_refused_where_it_is_registered(name: str) -> None:
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int)
    try:
        one = PayloadCodec.for_parameters("kind", {name: parameter})
    except ConfigError:
        return
    assert one.decode(one.encode({name: 1})) == {name: 1}


def test_a_payload_of_an_older_producer_takes_the_new_default() -> None:
    """It is left to the handler itself, which knows its defaults best."""
    assert codec(int, 5).decode(b"{}") == {}


# -- the whole payload, and results ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value", "field"),
    [
        (int, "1", ""),
        (Address, {"street": 5}, "street"),
        (Address, {}, "street"),
        (Order, {"number": "many"}, "number"),
        (list[int], [1, "2"], "[1]"),
    ],
    ids=repr,
)
def test_a_whole_payload_is_refused_by_the_name_of_its_field(
    hint: Any, value: Any, field: str
) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        PayloadCodec("kind", hint, whole=True).encode(value)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "result",
    [object(), math.nan, "\x00", "\ud800", self_referring()],
    ids=["object", "NaN", "NUL", "surrogate", "loop"],
)
def test_a_result_that_cannot_be_stored_is_a_typed_error(result: Any) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        encode_json("the result", result)
    assert "the result" in str(caught.value)
