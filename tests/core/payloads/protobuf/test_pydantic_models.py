"""A message in a pydantic model is read and written by its annotation, or refused at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pydantic
import pytest

from tests.core.payloads.protobuf.shop_messages import New, Old, SendEmail, SendSms, codec_of
from windlass import ConfigError, PayloadInvalid, Protobuf, Windlass
from windlass.core.payloads.protobuf.hints import messages_in

OldEmail: Any = Old["SendEmail"]
Email = Annotated[SendEmail, Protobuf()]
Sms = Annotated[SendSms, Protobuf(binary=True)]
T = TypeVar("T")


class Order(pydantic.BaseModel):
    number: int
    email: Email
    sms: list[Sms] = []
    more: list[Order] = []


class Box(pydantic.BaseModel, Generic[T]):
    content: T | None = None


class OldOrder(pydantic.BaseModel):
    email: Annotated[OldEmail, Protobuf()]


@dataclass
class Envelope:
    order: Order


def order() -> Order:
    return Order(number=7, email=SendEmail(to_address="a"), sms=[SendSms(number="1")])


def test_messages_in_a_model_are_found_with_their_form() -> None:
    found = messages_in(Envelope)
    assert set(found.classes) == {"shop.SendEmail", "shop.SendSms"}
    assert set(found.binary) == {"shop.SendSms"}
    assert set(messages_in(Box[Sms]).classes) == {"shop.SendSms"}


def test_a_model_with_messages_is_stored_and_read_again() -> None:
    codec = codec_of(Envelope)
    given = {"message": Envelope(Order(number=1, email=SendEmail(), more=[order()]))}
    payload = codec.encode(given)
    (inner,) = json.loads(payload)["message"]["order"]["more"]
    assert inner["email"] == {"to_address": "a"}
    assert inner["sms"] == [{"$protobuf": "shop.SendSms", "data": "CgEx"}]
    assert codec.decode(payload) == given


def test_a_generic_model_with_a_message_is_stored_and_read_again() -> None:
    codec = codec_of(Box[Sms])
    given = {"message": Box[Sms](content=SendSms(number="1"))}
    assert codec.decode(codec.encode(given)) == given
    assert codec.decode(codec.encode({"message": Box[Sms]()})) == {"message": Box[Sms]()}


def test_either_form_is_read_in_a_model() -> None:
    binary = codec_of(Order).encode({"message": order()})
    plain = binary.replace(b'{"$protobuf":"shop.SendSms","data":"CgEx"}', b'{"number":"1"}')
    assert plain != binary
    assert codec_of(Order).decode(plain) == {"message": order()}


def test_a_field_of_a_message_in_a_model_that_does_not_fit_is_named() -> None:
    payload = b'{"message":{"number":1,"email":{"tries":"seven"}}}'
    with pytest.raises(PayloadInvalid) as caught:
        codec_of(Order).decode(payload)
    assert (caught.value.field, caught.value.reason) == (
        "message.email.tries",
        "int64 is expected",
    )


def test_a_message_of_another_type_is_refused_by_the_model() -> None:
    with pytest.raises(pydantic.ValidationError, match="instance of SendEmail"):
        Order(number=1, email=SendSms())


def test_fields_that_this_release_does_not_know_are_kept() -> None:
    newer = New["SendEmail"](to="a", subject="b").SerializeToString()
    codec = codec_of(OldOrder)
    given = OldOrder(email=Old["SendEmail"].FromString(newer))
    decoded = codec.decode(codec.encode({"message": given}))
    assert decoded["message"].email.SerializeToString() == newer


def test_a_message_in_a_model_has_a_schema() -> None:
    schema = Order.model_json_schema()
    email = schema["$defs"]["Order"]["properties"]["email"]
    assert email["properties"]["to_address"] == {"type": "string"}
    assert codec_of(Order).json_schema() is not None


def test_a_handler_takes_and_returns_a_model_with_messages() -> None:
    app = Windlass("memory://")

    @app.job
    async def take(given: Order) -> Order:
        return given.model_copy(update={"number": given.number + 1})

    handle = take.enqueue(order())
    app.run_worker(burst=True)
    assert handle.result() == order().model_copy(update={"number": 8})


class Bare(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    email: SendEmail | None = None


class Outer(pydantic.BaseModel):
    inside: dict[str, list[Bare]]


class Own(pydantic.BaseModel):
    email: Annotated[
        SendEmail,
        pydantic.PlainValidator(lambda given: SendEmail(to_address=given)),
        pydantic.PlainSerializer(lambda email: email.to_address),
    ]


@pytest.mark.parametrize("hint", [Bare, Outer, list[Bare] | None])
def test_a_message_in_a_model_without_the_annotation_is_refused(hint: Any) -> None:
    wanted = r"SendEmail in the pydantic model Bare must be .* Annotated\[SendEmail, Protobuf\(\)\]"
    with pytest.raises(ConfigError, match=wanted):
        codec_of(hint)


def test_a_model_that_reads_and_writes_its_message_itself_is_left_alone() -> None:
    codec = codec_of(Own)
    payload = codec.encode({"message": Own.model_validate({"email": "a"})})
    assert json.loads(payload) == {"message": {"email": "a"}}
    assert codec.decode(payload)["message"].email == SendEmail(to_address="a")


class Either(msgspec.Struct):
    content: SendEmail | list[int] | None = None


class EitherModel(pydantic.BaseModel):
    content: Email | Annotated[SendSms, Protobuf()]


@pytest.mark.parametrize(
    ("hint", "names"),
    [
        (SendEmail | SendSms, r"SendEmail \| SendSms"),
        (SendEmail | str | None, r"SendEmail \| str"),
        (list[Email | dict[str, int]], r"SendEmail \| dict"),
        (Either, r"SendEmail \| list"),
        (EitherModel, r"SendEmail \| SendSms"),
    ],
)
def test_a_message_with_alternatives_is_refused_with_the_remedy(hint: Any, names: str) -> None:
    wanted = rf"must be the only type .* got {names}.*; use one message with a oneof"
    with pytest.raises(ConfigError, match=wanted):
        codec_of(hint)


def test_a_result_that_is_one_of_several_messages_is_refused_at_registration() -> None:
    app = Windlass("memory://")
    with pytest.raises(ConfigError, match="use one message with a oneof"):

        @app.job
        async def take() -> SendEmail | SendSms: ...


def test_a_message_that_may_be_missing_has_no_alternative() -> None:
    codec = codec_of(SendEmail | None, default=None)
    assert codec.decode(codec.encode({"message": None})) == {"message": None}
