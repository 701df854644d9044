"""The messages that a payload may have are found by its type hints, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest
from google.protobuf.message import Message

from tests.core.payloads.protobuf.shop_messages import New, Old, SendEmail, SendSms, codec_of
from windlass import ConfigError, Protobuf, Secret
from windlass.core.payloads.protobuf.forms import NO_MESSAGES
from windlass.core.payloads.protobuf.hints import messages_in

BINARY = Protobuf(binary=True)
T = TypeVar("T")
Sms = NewType("Sms", SendSms)  # type: ignore[valid-newtype] # It is made at run time.


@dataclass
class Order:
    email: Annotated[SendEmail, BINARY]
    sms: list[SendSms] = field(default_factory=list)
    more: list[Order] = field(default_factory=list)


class Struct(msgspec.Struct):
    order: Order | None = None


class Dictionary(TypedDict):
    email: SendEmail


class Pair(NamedTuple):
    email: SendEmail
    number: int = 0


@dataclass
class Box(Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("hint", "names", "binary"),
    [
        (SendEmail, {"shop.SendEmail"}, set()),
        (Annotated[SendEmail, BINARY], {"shop.SendEmail"}, {"shop.SendEmail"}),
        (Annotated[SendEmail, Protobuf()], {"shop.SendEmail"}, set()),
        (Annotated[SendEmail, "a note"], {"shop.SendEmail"}, set()),
        (Annotated[SendEmail, ["not", "hashable"]], {"shop.SendEmail"}, set()),
        (dict[str, list[SendEmail]] | None, {"shop.SendEmail"}, set()),
        (Order, {"shop.SendEmail", "shop.SendSms"}, {"shop.SendEmail"}),
        (Struct, {"shop.SendEmail", "shop.SendSms"}, {"shop.SendEmail"}),
        (Dictionary, {"shop.SendEmail"}, set()),
        (Pair, {"shop.SendEmail"}, set()),
        (Box[SendSms], {"shop.SendSms"}, set()),
        (Sms, {"shop.SendSms"}, set()),
        (Secret[Annotated[SendEmail, BINARY]], {"shop.SendEmail"}, {"shop.SendEmail"}),
    ],
)
def test_messages_are_found_in_every_type(hint: Any, names: set[str], binary: set[str]) -> None:
    found = messages_in(hint)
    assert (set(found.classes), set(found.binary)) == (names, binary)


@pytest.mark.parametrize("hint", [int, Any, list[str], Box[int], "text", None, dict])
def test_most_types_have_none(hint: Any) -> None:
    assert messages_in(hint) is NO_MESSAGES


@pytest.mark.parametrize("hint", [Message, list[Message], Box[Message]])
def test_the_base_of_all_messages_is_refused(hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"got Message, the base of all of them; name the class"):
        codec_of(hint)


@pytest.mark.parametrize("hint", [int, list[SendEmail], SendEmail | None])
def test_the_annotation_belongs_to_the_class(hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"Protobuf\(\.\.\.\) must annotate a class of messages"):
        codec_of(Annotated[hint, BINARY])


def test_two_classes_of_one_message_are_refused() -> None:
    pair: Any = tuple
    with pytest.raises(ConfigError, match=r"two classes of the message shop\.SendEmail"):
        codec_of(pair[Old["SendEmail"], New["SendEmail"]])


def test_a_dataclass_keeps_the_form_of_its_fields() -> None:
    codec = codec_of(Struct)
    order = Order(SendEmail(to_address="a"), [SendSms(number="1")])
    payload = codec.encode({"message": Struct(Order(SendEmail(), more=[order]))})
    assert codec.decode(payload) == {"message": Struct(Order(SendEmail(), more=[order]))}
    assert b'"sms":[{"number":"1"}]' in payload
    assert payload.count(b'"$protobuf":"shop.SendEmail"') == 2
