"""A protobuf message goes through a payload as JSON or as bytes, and comes out as it was."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from typing import Annotated, Any

import pytest
from google.protobuf import struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.core.payloads.protobuf.shop_messages import (
    Attachment,
    Record,
    SendEmail,
    SendSms,
    codec_of,
)
from tests.support.protobuf_messages import message_classes
from windlass import ConfigError, PayloadInvalid, PayloadTooLarge, Protobuf
from windlass.core.payloads.codec import decode_json, encode_json
from windlass.core.payloads.protobuf.forms import Messages

BINARY = Protobuf(binary=True)
AS_JSON = codec_of(SendEmail)
AS_BYTES = codec_of(Annotated[SendEmail, BINARY])
CODECS = pytest.mark.parametrize("codec", [AS_JSON, AS_BYTES], ids=["JSON", "binary"])
EMAIL = SendEmail(
    to_address="ada@example.org",
    tries=2**60,
    color=1,
    files=[Attachment(name="a", data=b"\x00\xff", parts=[Attachment(name="b")])],
    counts={"pages": 3},
    html="<p>",
    share=0.1,
)


def stored(payload: bytes) -> Any:
    return json.loads(payload)["message"]


def refused(payload: Any, hint: Any = SendEmail) -> PayloadInvalid:
    with pytest.raises(PayloadInvalid) as caught:
        codec_of(hint).decode(json.dumps({"message": payload}).encode())
    return caught.value


def test_json_has_the_names_of_fields_enums_as_numbers_and_long_integers_as_text() -> None:
    assert stored(AS_JSON.encode({"message": EMAIL})) == {
        "to_address": "ada@example.org",
        "tries": "1152921504606846976",
        "color": 1,
        "files": [{"name": "a", "data": "AP8=", "parts": [{"name": "b"}]}],
        "counts": {"pages": 3},
        "html": "<p>",
        "share": 0.1,
    }


def test_bytes_are_stored_with_the_name_of_their_type() -> None:
    assert stored(AS_BYTES.encode({"message": EMAIL})) == {
        "$protobuf": "shop.SendEmail",
        "data": b64encode(EMAIL.SerializeToString(deterministic=True)).decode(),
    }


@CODECS
def test_either_form_is_read_wherever_a_message_is_expected(codec: Any) -> None:
    for writer in (AS_JSON, AS_BYTES):
        assert codec.decode(writer.encode({"message": EMAIL})) == {"message": EMAIL}


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
attachments = st.builds(
    Attachment,
    name=texts,
    data=st.binary(),
    parts=st.lists(st.builds(Attachment, name=texts), max_size=2),
)
emails = st.builds(
    SendEmail,
    to_address=texts,
    tries=st.integers(-(2**63), 2**63 - 1),
    color=st.integers(-(2**31), 2**31 - 1),
    files=st.lists(attachments, max_size=2),
    counts=st.dictionaries(texts, st.integers(-(2**31), 2**31 - 1), max_size=3),
    html=texts,
    ratio=st.floats(allow_nan=False),
    share=st.floats(width=32, allow_nan=False),
    urgent=st.booleans(),
    by_name=st.dictionaries(texts, attachments, max_size=2),
)


@given(email=emails)
def test_every_message_is_read_back_as_it_was(email: Any) -> None:
    for codec in (AS_JSON, AS_BYTES):
        assert codec.decode(codec.encode({"message": email})) == {"message": email}


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_float_is_read_back_though_protobuf_refuses_what_it_writes(sign: int) -> None:
    email = SendEmail(share=sign * 3.4028234663852886e38)
    assert AS_JSON.decode(AS_JSON.encode({"message": email})) == {"message": email}


def test_messages_of_protobuf_itself_have_their_own_json() -> None:
    record = Record(limit={"value": 5})
    record.at.FromSeconds(1)
    record.lasts.FromSeconds(90)
    record.extra.update({"a": [1, None, "x"]})
    record.detail.Pack(Attachment(name="a"))
    record.value.string_value = "v"
    codec = codec_of(Record)
    payload = codec.encode({"message": record})
    assert stored(payload) == {
        "at": "1970-01-01T00:00:01Z",
        "lasts": "90s",
        "extra": {"a": [1, None, "x"]},
        "detail": {"@type": "type.googleapis.com/shop.Attachment", "name": "a"},
        "limit": "5",
        "value": "v",
    }
    assert codec.decode(payload) == {"message": record}


def test_a_message_of_protobuf_itself_can_be_the_argument() -> None:
    codec = codec_of(timestamp_pb2.Timestamp)
    moment = timestamp_pb2.Timestamp(seconds=5)
    assert stored(codec.encode({"message": moment})) == "1970-01-01T00:00:05Z"
    assert codec.decode(codec.encode({"message": moment})) == {"message": moment}


def test_content_that_looks_like_the_binary_form_is_not_taken_for_it() -> None:
    struct = struct_pb2.Struct()
    struct.update({"$protobuf": "google.protobuf.Struct", "data": ""})
    codec = codec_of(struct_pb2.Struct)
    assert codec.decode(codec.encode({"message": struct})) == {"message": struct}


@CODECS
def test_an_argument_must_be_a_message_of_its_class(codec: Any) -> None:
    with pytest.raises(
        PayloadInvalid, match=r"'message': it must be a shop\.SendEmail, got a .*Sms"
    ):
        codec.encode({"message": SendSms(number="1")})


def test_a_message_among_others_must_be_of_their_class() -> None:
    with pytest.raises(PayloadInvalid, match=r"'message': it must be a shop\.SendEmail"):
        codec_of(list[SendEmail]).encode({"message": [SendEmail(), SendSms()]})


def test_the_messages_of_two_arguments_are_not_exchanged() -> None:
    from inspect import Parameter

    from windlass.core.payloads.codec import PayloadCodec

    both = {
        name: Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint)
        for name, hint in (("email", SendEmail), ("sms", SendSms))
    }
    codec = PayloadCodec.for_parameters("send", both)
    codec.encode({"email": SendEmail(), "sms": SendSms()})
    with pytest.raises(PayloadInvalid, match=r"'email': it must be a shop\.SendEmail"):
        codec.encode({"email": SendSms(), "sms": SendEmail()})


@pytest.mark.parametrize(
    ("payload", "field", "reason"),
    [
        ("text", "", "an object is expected, got text"),
        ([], "", "an object is expected, got an array"),
        (None, "", "an object is expected, got null"),
        ({"tries": "secret"}, "tries", "int64 is expected"),
        ({"tries": 2**63}, "tries", "int64 is expected"),
        ({"tries": 1.5}, "tries", "int64 is expected"),
        ({"to_address": 5}, "to_address", "string is expected"),
        ({"color": "PURPLE"}, "color", "a value of shop.Color is expected"),
        ({"cover": "text"}, "cover", "an object is expected, got text"),
        ({"cover": {"data": "%%%"}}, "cover.data", "bytes as base64 are expected, got text"),
        ({"cover": {"data": "abcde"}}, "cover.data", "bytes as base64 are expected, got text"),
        ({"cover": {"data": 5}}, "cover.data", "bytes as base64 are expected, got a number"),
        ({"files": {}}, "files", "an array is expected, got an object"),
        ({"files": [{}, {"parts": 5}]}, "files[1].parts", "an array is expected, got a number"),
        ({"counts": []}, "counts", "an object is expected, got an array"),
        ({"counts": {"a": "b"}}, "counts", "map of string to int32 is expected"),
        ({"by_name": {"a": 1}}, "by_name.a", "an object is expected, got a number"),
        ({"text": "a", "html": "b"}, "html", "text is given, too; body is one of them"),
        ({"$protobuf": "shop.SendSms", "data": ""}, "", "a shop.SendEmail is expected, got a sho"),
        ({"$protobuf": "shop.SendEmail", "data": "//8="}, "", "the bytes are not a valid shop.Sen"),
        ({"$protobuf": "shop.SendEmail", "data": "%"}, "", "the bytes of the shop.SendEmail are n"),
    ],
)
def test_another_value_is_refused_by_its_field_without_being_quoted(
    payload: Any, field: str, reason: str
) -> None:
    error = refused(payload)
    assert error.field == f"message.{field}".rstrip(".")
    assert error.reason.startswith(reason)
    assert "secret" not in str(error)


def test_names_of_enums_and_fields_in_camel_case_are_read_too() -> None:
    payload = b'{"message": {"toAddress": "ada", "color": "RED", "tries": 3, "cover": null}}'
    assert AS_JSON.decode(payload) == {"message": SendEmail(to_address="ada", color=1, tries=3)}


def test_a_time_that_is_none_is_refused() -> None:
    error = refused({"at": "yesterday"}, Record)
    assert (error.field, error.reason) == ("message.at", "google.protobuf.Timestamp is expected")


def test_a_message_in_an_any_has_to_be_imported_by_who_reads_or_writes_its_json() -> None:
    detail = {"@type": "type.googleapis.com/other.Thing", "x": 1}
    assert "other.Thing, whose class is not imported" in refused({"detail": detail}, Record).reason
    record = Record(detail={"type_url": "type.googleapis.com/other.Thing", "value": b"x"})
    with pytest.raises(PayloadInvalid, match=r"import it, or write .*Protobuf\(binary=True\)"):
        codec_of(Record).encode({"message": record})
    binary = codec_of(Annotated[Record, BINARY])
    assert binary.decode(binary.encode({"message": record})) == {"message": record}


def test_required_fields_are_required_of_who_writes_and_of_who_reads() -> None:
    old = message_classes({"Login": {"user": "1 required string"}}, syntax="proto2")["Login"]
    for hint in (old, Annotated[old, BINARY]):
        with pytest.raises(PayloadInvalid, match=r"required fields are missing: user"):
            codec_of(hint).encode({"message": old()})
    for payload in ({}, {"$protobuf": "shop.Login", "data": ""}):
        assert refused(payload, old).reason == "required fields are missing: user"


def test_a_nul_character_needs_bytes() -> None:
    email = SendEmail(to_address="a\x00b")
    with pytest.raises(PayloadInvalid, match=r"'message\.to_address': a NUL character"):
        AS_JSON.encode({"message": email})
    assert AS_BYTES.decode(AS_BYTES.encode({"message": email})) == {"message": email}


def test_numbers_that_are_not_finite_are_text_in_json() -> None:
    payload = AS_JSON.encode({"message": SendEmail(ratio=float("inf"))})
    assert stored(payload) == {"ratio": "Infinity"}
    assert AS_JSON.decode(payload) == {"message": SendEmail(ratio=float("inf"))}


@CODECS
def test_the_limit_of_a_payload_counts_the_stored_bytes(codec: Any) -> None:
    email = SendEmail(to_address="a" * 1000)
    size = len(codec.encode({"message": email}))
    codec.encode({"message": email}, limit=size)
    with pytest.raises(PayloadTooLarge):
        codec.encode({"message": email}, limit=size - 1)


@CODECS
def test_a_message_that_nobody_could_read_back_is_refused_when_it_is_enqueued(codec: Any) -> None:
    refusals = 0
    for depth in (90, *range(95, 105), 110, 150):
        email = SendEmail()
        deep = email.files.add(name="outer")
        for _ in range(depth):
            deep = deep.parts.add()
        try:
            payload = codec.encode({"message": email})
        except PayloadInvalid:
            refusals += 1
        else:
            assert codec.decode(payload) == {"message": email}
    assert 3 <= refusals < 13


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (SendEmail | None, None),
        (SendEmail | None, EMAIL),
        (list[SendEmail], [EMAIL, EMAIL]),
        (dict[str, Annotated[SendEmail, BINARY]], {"a": EMAIL}),
        (tuple[SendEmail, SendSms], (EMAIL, SendSms())),
    ],
)
def test_messages_may_be_in_containers(hint: Any, value: Any) -> None:
    codec = codec_of(hint)
    assert codec.decode(codec.encode({"message": value})) == {"message": value}


def test_an_argument_with_a_default_may_be_left_out() -> None:
    codec = codec_of(SendEmail, default=EMAIL)
    assert codec.decode(codec.encode({})) == {}
    assert codec.decode(codec.encode({"message": EMAIL})) == {"message": EMAIL}


def test_a_message_without_an_annotation_is_written_as_json() -> None:
    assert decode_json(encode_json("result", EMAIL), SendEmail) == EMAIL
    assert decode_json(encode_json("result", SendSms(number="1"))) == {"number": "1"}


def test_people_read_bytes_as_json_and_see_that_something_is_unknown() -> None:
    known = Messages({"shop.SendSms": SendSms})
    form = {"$protobuf": "shop.SendSms", "data": b64encode(b"\x0a\x011").decode()}
    more = {"$protobuf": "shop.SendSms", "data": b64encode(b"\x0a\x011\x12\x01x").decode()}
    other = {"$protobuf": "shop.SendEmail", "data": ""}
    value = {"a": [form], "b": more, "c": other, "d": 1}
    assert known.decoded(value) == {
        "a": [{"number": "1"}],
        "b": {"number": "1", "$unknown_bytes": 3},
        "c": other,
        "d": 1,
    }
    assert known.decoded(value, whole=True)["b"] == more


def test_bytes_that_cannot_be_decoded_are_shown_as_they_are() -> None:
    broken = {"$protobuf": "shop.SendSms", "data": "//8="}
    assert Messages({"shop.SendSms": SendSms}).decoded(broken) == broken


def test_without_protobuf_the_remedy_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.json_format", None)
    # A class of its own, since what is known of others is kept.
    lonely = message_classes({"Lonely": {"x": "1 string"}})["Lonely"]
    with pytest.raises(ConfigError, match=r"pip install 'windlass\[protobuf\]'"):
        codec_of(lonely)
