"""What no payload may hold: NaN, NUL, surrogates, and more bytes or depth than the limit."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.payloads.order_types import Address, Order, Point, codec, refused, self_referring
from windlass.core.errors import PayloadError, PayloadInvalid, PayloadTooLarge
from windlass.core.payloads.codec import MAX_PAYLOAD


def nested(leaf: Any, depth: int) -> list[Any]:
    for _ in range(depth):
        leaf = [leaf]
    return [leaf]


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
