"""A secret shows itself to nobody by accident, and goes through a payload sealed."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import pickle
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest

from windlass import PayloadInvalid, Secret
from windlass.core.failures.describe import describe
from windlass.core.payloads.codec import PayloadCodec
from windlass.core.payloads.redaction import Redaction
from windlass.core.payloads.secret import holds_secrets, secrets_in, texts_of
from windlass.core.policies.keys import key_of

HIDDEN = "4111-1111"


class Reverse:
    """A cipher that hides nothing well, and tells what it was bound to."""

    def seal(self, plain: bytes, *, bound: bytes) -> str:
        return b64encode(bound + b"|" + plain[::-1]).decode()

    def open(self, sealed: str, *, bound: bytes) -> bytes:
        was, _, plain = b64decode(sealed).partition(b"|")
        if was != bound:
            raise ValueError(f"it was sealed for {was.decode()}")
        return plain[::-1]


@dataclass
class Card:
    number: Secret[str]
    holder: str = "anna"
    more: list[Card] = field(default_factory=list)


class Account(TypedDict):
    pin: Secret[int]
    note: NotRequired[str]


class Login(msgspec.Struct):
    keys: dict[str, Secret[dict[str, str]]]


def codec(hint: Any, kind: str = "charge") -> PayloadCodec:
    parameter = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=hint)
    return PayloadCodec.for_parameters(kind, {"x": parameter}, cipher=Reverse())


@pytest.mark.parametrize(
    "shown",
    [
        repr,
        str,
        "{}".format,
        "{!r:>40}".format,
        lambda secret: f"{secret:>40}",
        lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - as people still write it.
        lambda secret: repr([secret, {"a": secret}]),
        lambda secret: json.dumps({"a": secret}, default=str),
        lambda secret: repr(Card(secret)),
        lambda secret: logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage(),
        lambda secret: repr(Exception(secret)),
    ],
)
def test_nothing_that_shows_a_secret_shows_what_it_hides(shown: Any) -> None:
    text = shown(Secret(HIDDEN))
    assert "Secret(***)" in text
    assert HIDDEN not in text


def test_a_secret_is_not_written_as_json_by_accident() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret(HIDDEN))
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret(HIDDEN))
    assert not hasattr(Secret(HIDDEN), "__dict__")


def test_secrets_are_equal_if_what_they_hide_is() -> None:
    assert Secret(HIDDEN) == Secret(HIDDEN) != Secret("other")
    assert Secret(HIDDEN) != HIDDEN
    assert len({Secret(HIDDEN), Secret(HIDDEN), Secret("other")}) == 2
    assert len({Secret({"a": 1}), Secret({"a": 1}), Secret({"b": 1})}) == 2


def test_a_secret_can_be_copied() -> None:
    ways: list[Any] = [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
    for made in ways:
        assert made(Secret([HIDDEN])).reveal() == [HIDDEN]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Secret[str], Secret(HIDDEN)),
        (Secret, Secret({"any": [HIDDEN, 1, None]})),
        (Secret[dict[str, str]], Secret({"number": HIDDEN})),
        (Secret[Card], Secret(Card(Secret(HIDDEN)))),
        (Secret[str] | None, None),
        (Secret[str] | None, Secret(HIDDEN)),
        (list[Secret[str]], [Secret(HIDDEN), Secret("other")]),
        (Card, Card(Secret(HIDDEN), more=[Card(Secret("inner"))])),
        (Account, {"pin": Secret(4111), "note": "x"}),
        (Login, Login({"a": Secret({"token": HIDDEN})})),
    ],
)
def test_a_secret_comes_back_from_wherever_it_was_in_a_payload(hint: Any, value: Any) -> None:
    payload = codec(hint).encode({"x": value})
    assert HIDDEN.encode() not in payload
    assert codec(hint).decode(payload) == {"x": value}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (HIDDEN, "a Secret is expected; write Secret"),
        ({"$secret": 5}, "a Secret is expected"),
        (Secret(4111), "the value of the secret is not a valid str"),
        (Secret("a\x00b"), "NUL"),
        (Secret(object()), "no JSON form"),
    ],
)
def test_an_invalid_secret_is_refused_without_being_quoted(value: Any, why: str) -> None:
    with pytest.raises(PayloadInvalid, match=why) as refused:
        codec(Secret[str]).encode({"x": value})
    told = describe(refused.value)
    assert "4111" not in told.message + told.traceback.rpartition("in codec")[2]


def test_a_secret_is_refused_where_no_annotation_says_that_it_is_one() -> None:
    with pytest.raises(PayloadInvalid, match=r"field 'x': a Secret needs the annotation"):
        codec(Any).encode({"x": Secret(HIDDEN)})


def test_a_secret_opens_only_for_its_kind_and_for_a_given_alias() -> None:
    payload = codec(Secret[str], "charge").encode({"x": Secret(HIDDEN)})
    renamed = codec(Secret[str], "charge_card")
    with pytest.raises(PayloadInvalid, match=r"field 'x': it was sealed for .*:charge$"):
        renamed.decode(payload)
    assert renamed.decode(payload, kind="charge") == {"x": Secret(HIDDEN)}


@pytest.mark.parametrize("hint", [Secret[str], list[Card], Account, Login, Secret[str] | None])
def test_types_with_secrets_are_known(hint: Any) -> None:
    assert holds_secrets(hint)


@pytest.mark.parametrize("hint", [str, Any, list[dict[str, int]], object])
def test_types_without_secrets_are_known(hint: Any) -> None:
    assert not holds_secrets(hint)


def test_secrets_in_arguments_are_found_as_texts() -> None:
    arguments = {"card": Card(Secret(HIDDEN)), "login": Login({"a": Secret({"b": "deep"})})}
    found = {text for secret in secrets_in(arguments) for text in texts_of(secret)}
    assert found == {HIDDEN, "deep"}


def test_a_secret_is_no_key() -> None:
    with pytest.raises(PayloadInvalid, match="a key must not be a Secret"):
        key_of("charge", "card", {"card": Secret(HIDDEN)})


def test_an_error_is_remembered_without_the_secrets_that_are_known() -> None:
    def fail() -> None:
        cause = ValueError(f"declined: {HIDDEN}")
        cause.add_note(f"card was {HIDDEN}")
        raise RuntimeError("x" * 9_990 + HIDDEN + "y" * 9_990) from cause

    with pytest.raises(RuntimeError) as raised:
        fail()
    told = describe(raised.value, Redaction().knowing([HIDDEN]))
    assert HIDDEN not in told.message + told.traceback
    assert "declined: ***" in told.traceback
    assert "card was ***" in told.traceback
    # Cut through the middle of a secret, each half would have passed for something else.
    assert HIDDEN[:4] not in told.message


class Colour(Enum):
    """A value of a kind of its own."""

    RED = "crimson"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UUID(int=7), str(UUID(int=7))),
        (Colour.RED, "crimson"),
        (Decimal("12.50"), "12.50"),
        (date(2001, 2, 3), "2001-02-03"),
        (b"\xff\x00secret", r"\xff\x00secret"),
        (b"\xff\x00secret", "/wBzZWNyZXQ="),
        ({"name": {"of": ["hidden"]}}, "hidden"),
    ],
)
def test_every_value_of_a_secret_is_masked_by_its_text(value: object, text: str) -> None:
    """Prevents: a secret that shows in an error, or whose parts have no end."""
    assert text in list(texts_of(Secret(value)))
