"""The laws of payloads: what fits arrives unchanged, what does not is refused by its field."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import ConfigError, PayloadError, PayloadInvalid, PayloadTooLarge
from windlass.core.failures.describe import describe
from windlass.core.payloads.codec import MAX_PAYLOAD, PayloadCodec, decode_json, encode_json

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOME_ID = UUID("0199a8a0-0000-7000-8000-000000000001")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Address(msgspec.Struct):
    street: str
    zip_code: str | None = None


class Options(TypedDict):
    size: int
    note: NotRequired[str]


class Order(pydantic.BaseModel):
    number: int
    total: float | None = None
    note: str = ""


class Basket(pydantic.BaseModel):
    orders: list[Order]


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


def codec(hint: Any, default: Any = inspect.Parameter.empty) -> PayloadCodec:
    """Make the codec of a handler with one parameter `x`."""
    parameter = inspect.Parameter(
        "x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint, default=default
    )
    return PayloadCodec.for_parameters("kind", {"x": parameter})


def codec_of(function: Callable[..., object]) -> PayloadCodec:
    return PayloadCodec.for_parameters(
        "kind", inspect.signature(function, eval_str=True).parameters
    )


def refused(value: Any, hint: Any = Any) -> PayloadInvalid:
    """Return the error with which a value is refused at enqueue."""
    with pytest.raises(PayloadInvalid) as caught:
        codec(hint).encode({"x": value})
    return caught.value


def nested(leaf: Any, depth: int) -> list[Any]:
    for _ in range(depth):
        leaf = [leaf]
    return [leaf]


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


# -- defaults --------------------------------------------------------------------------------------


class Clock:
    """Something that has no JSON form."""


CLOCK = Clock()
SHARED: list[int] = []


def with_defaults(
    x: int,
    names: list[int] = SHARED,
    order: Order = Order(number=7),  # noqa: B008 - a default that a user may well write
    clock: Any = CLOCK,
    typed_clock: Clock = CLOCK,
    out: Callable[..., None] = print,
    ratio: float = math.nan,
) -> None: ...


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


# -- what does not fit, and by which name (C8) -----------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value", "field"),
    [
        (int, "1", "x"),
        (int, 1.5, "x"),
        (int, True, "x"),
        (str, 1, "x"),
        (datetime, "yesterday", "x"),
        (UUID, "not-an-id", "x"),
        (Decimal, "ten", "x"),
        (Colour, "green", "x"),
        (Literal["a", "b"], "c", "x"),
        (int | None, "1", "x"),
        (list[int], [1, "2"], "x[1]"),
        (list[list[int]], [[1], [2, None]], "x[1][1]"),
        (dict[str, int], {"a": "1"}, "x[...]"),
        (dict[int, int], {"a": 1}, "x"),
        (tuple[int, str], (1, 2), "x[1]"),
        (Point, {"x": 1, "y": "2"}, "x.y"),
        (Point, {"y": 2}, "x"),
        (Address, {"street": 5}, "x.street"),
        (list[Address], [{"street": "a"}, {"street": 5}], "x[1].street"),
        (Options, {"size": "big"}, "x.size"),
        (Options, {}, "x"),
        (Order, {"number": "many"}, "x.number"),
        (Order, {}, "x.number"),
        (Order, 3, "x"),
        (list[Order], [{"number": 1}, {"number": "many"}], "x[1].number"),
        (Basket, {"orders": [{"number": 1}, {"number": "many"}]}, "x.orders.1.number"),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_field(
    hint: Any, value: Any, field: str
) -> None:
    error = refused(value, hint)
    assert error.field == field
    assert error.kind == "kind"
    assert error.reason


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [object()],
        {"inner": object()},
        {(1, 2): 3},
        CLOCK,
        print,
        ValueError("an exception"),
        1j,
        10**5_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_json_form_is_refused_by_the_name_of_its_argument(value: Any) -> None:
    one = codec_of(with_defaults)
    with pytest.raises(PayloadInvalid) as caught:
        one.encode({"x": 1, "clock": value})
    assert caught.value.field.startswith("clock")


def test_an_unknown_argument_is_refused_by_its_name() -> None:
    with pytest.raises(PayloadInvalid) as caught:
        codec(int).encode({"x": 1, "colour": "red"})
    assert caught.value.field == "colour"


def test_a_missing_argument_is_refused_by_its_name() -> None:
    with pytest.raises(PayloadInvalid) as caught:
        codec(int).encode({})
    assert caught.value.field == "x"


class Picky(msgspec.Struct):
    """Refuses everything, each value in another way."""

    how: str

    def __post_init__(self) -> None:
        raise {
            "value": ValueError("too picky"),
            "errors": OddlyShaped("too picky"),
            "key": KeyError("too picky"),
            "runtime": RuntimeError("too picky"),
        }[self.how]


class OddlyShaped(ValueError):
    """Looks like pydantic's error to whoever asks only for its attribute."""

    errors = ("one", "two")


class PickyModel(pydantic.BaseModel):
    how: str

    @pydantic.field_validator("how")
    @classmethod
    def refuse(cls, how: str) -> str:
        Picky(how)
        return how


@pytest.mark.parametrize("hint", [Picky, PickyModel])
@pytest.mark.parametrize("how", ["value", "errors", "key", "runtime"])
def test_any_exception_of_a_validator_refuses_the_payload(hint: Any, how: str) -> None:
    """Else a bad payload is retried like a passing fault instead of going to the dead letter."""
    with pytest.raises(PayloadInvalid, match="too picky"):
        codec(hint).decode(b'{"x":{"how":"%s"}}' % how.encode())


@pytest.mark.parametrize("hint", [Clock, list[Clock], Callable[[], int]], ids=repr)
def test_a_type_that_no_payload_can_hold_is_refused_by_a_typed_error(hint: Any) -> None:
    with pytest.raises((ConfigError, PayloadInvalid)):
        codec(hint).encode({"x": 1})


def test_object_is_as_good_as_any() -> None:
    one = codec(object)
    assert one.decode(one.encode({"x": [1]})) == {"x": [1]}


def test_hints_that_contradict_each_other_are_refused_where_they_are_registered() -> None:
    with pytest.raises(ConfigError, match="kind"):
        codec(Point | Address)


def test_an_error_about_a_payload_does_not_repeat_its_values() -> None:
    """It is logged, and payloads stay out of logs (B5); pydantic quotes them in its own message."""
    secret = "2retnuh"[::-1]  # Not spelt out: the traceback shows the lines of this test.
    with pytest.raises(PayloadInvalid) as caught:
        codec(Order).encode({"x": {"number": secret}})
    info = describe(caught.value)
    assert secret not in info.message
    assert secret not in info.traceback


# -- torture 38: NaN, NUL, surrogates --------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("hint", "wrap", "field"),
    [
        (float | None, lambda number: number, "x"),
        (float, lambda number: number, "x"),
        (Any, lambda number: number, "x"),
        (Any, lambda number: {"a": [1.0, number]}, "x.a[1]"),
        (Any, lambda number: {"a": None, "b": number}, "x.b"),
        (Order, lambda number: Order(number=1, total=number), "x.total"),
        (Any, lambda number: Point(number), "x.x"),
        (Any, lambda number: (1, number), "x[1]"),
        (Any, lambda number: {number}, "x[0]"),
    ],
)
def test_nan_and_infinities_are_refused_and_never_become_none(
    hint: Any, wrap: Callable[[float], Any], field: str, number: float
) -> None:
    error = refused(wrap(number), hint)
    assert error.field == field
    assert "NaN" in error.reason


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("\x00", "x"),
        ("\\\x00", "x"),
        ("\\u0000 and \x00", "x"),
        (["fine", "not\x00fine"], "x[1]"),
        ({"a": {"b": "\x00"}}, "x.a.b"),
        ({"k\x00": 1}, "x.k\x00"),
        ({"\x00"}, "x[0]"),
        (Address("\x00"), "x.street"),
        (Order(number=1, note="\x00"), "x.note"),
    ],
    ids=ascii,
)
def test_a_nul_is_refused_by_the_name_of_its_field(value: Any, field: str) -> None:
    error = refused(value)
    assert error.field == field
    assert "NUL" in error.reason


@pytest.mark.parametrize(
    "text", [r"\u0000", r"\\u0000", r"C:\users\u0000", "\\" * 7 + "u0000", "u0000", "null", "NaN"]
)
def test_text_that_only_looks_like_an_escape_is_allowed(text: str) -> None:
    one = codec(Any)
    sent = {"x": {"text": text, text: None}}
    assert one.decode(one.encode(sent)) == sent


@given(st.text(st.sampled_from("\\u0\x00n"), max_size=12))
def test_text_is_refused_exactly_when_it_has_a_nul(text: str) -> None:
    if "\x00" in text:
        assert refused(text, str).field == "x"
    else:
        assert codec(str).decode(codec(str).encode({"x": text})) == {"x": text}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("\ud800", "x"),
        ("fine \udfff", "x"),
        ({"a": ["b", "\ud83d"]}, "x.a[1]"),
        ({"\ud800": 1}, "x.\ud800"),
        (Address("\ud800"), "x.street"),
    ],
    ids=ascii,
)
def test_a_lone_surrogate_is_refused_by_the_name_of_its_field(value: Any, field: str) -> None:
    error = refused(value)
    assert error.field == field
    assert "surrogate" in error.reason


# -- torture 39: size and depth (B4) ---------------------------------------------------------------


def test_a_payload_of_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    frame = len(b'{"x":""}')
    assert len(codec(str).encode({"x": "a" * (MAX_PAYLOAD - frame)})) == MAX_PAYLOAD
    with pytest.raises(PayloadTooLarge) as caught:
        codec(str).encode({"x": "a" * (MAX_PAYLOAD - frame + 1)})
    assert (caught.value.size, caught.value.limit) == (MAX_PAYLOAD + 1, MAX_PAYLOAD)


def test_the_limit_counts_bytes_and_can_be_set() -> None:
    codec(str).encode({"x": "ü" * 4}, limit=16)
    with pytest.raises(PayloadTooLarge):
        codec(str).encode({"x": "ü" * 5}, limit=16)


def test_a_payload_of_a_hundred_megabytes_is_a_typed_error() -> None:
    with pytest.raises(PayloadTooLarge):
        codec(str).encode({"x": "a" * 100_000_000})


def test_a_value_nested_a_hundred_thousand_deep_is_refused_at_enqueue() -> None:
    assert "deep" in refused(nested(None, 100_000)).reason


@pytest.mark.parametrize(
    "leaf",
    ["\x00", "\ud800", math.nan, None, object()],
    ids=["NUL", "surrogate", "NaN", "None", "object"],
)
def test_no_depth_lets_anything_but_a_typed_error_escape(leaf: Any) -> None:
    """The search for the wrong leaf recurses too, from a deeper frame than the encoder's."""
    limit = sys.getrecursionlimit()
    escaped = []
    for depth in (*range(limit - 100, limit + 2), 2 * limit, 5 * limit):
        try:
            codec(Any).encode({"x": nested(leaf, depth)})
        except PayloadError:
            continue
        except RecursionError:
            escaped.append(depth)
        else:
            assert leaf is None
    assert escaped == []


def self_referring() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def test_a_value_that_refers_to_itself_is_refused() -> None:
    assert "refers to itself" in refused(self_referring()).reason
    loop: dict[str, Any] = {"nan": math.nan, "nul": "\x00"}
    loop["loop"] = loop
    assert "refers to itself" in refused(loop).reason


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"x":' + b"[" * 100_000,
        b"[" * 100_000,
    ],
    ids=["arrays", "objects", "unclosed", "no object"],
)
def test_raw_bytes_nested_a_hundred_thousand_deep_are_refused(raw: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        codec(Any).decode(raw)


# -- raw rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"nonsense",
        b"\xff\xfe",
        b'{"x":"\xff"}',
        b'{"x":"\\ud800"}',
        b'{"x":1',
        b'{"x":1} and more',
        b'{"x":NaN}',
        b'{"x":1e999}',
        b'{"x":' + b"9" * 5_000 + b"}",
        b"[1]",
        b"null",
        b"3",
        b'{"y":1}',
        b'{"x":1,"y":2}',
        b'{"`":1}',
        b'{"x\\u0000":1}',
    ],
    ids=lambda raw: ascii(raw[:20]),
)
def test_bytes_that_windlass_did_not_write_are_refused(raw: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        codec(Any).decode(raw)


@given(st.binary(max_size=50))
def test_any_bytes_decode_or_are_refused(raw: bytes) -> None:
    with contextlib.suppress(PayloadInvalid):
        assert set(codec(Any).decode(raw)) == {"x"}


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
