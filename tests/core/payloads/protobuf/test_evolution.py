"""Messages of an older and of a newer schema are read by each other, in both forms."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

from tests.core.payloads.protobuf.shop_messages import New, Old, codec_of
from tests.support.protobuf_messages import message_classes
from windlass import PayloadInvalid, Protobuf

BINARY = Protobuf(binary=True)
FORMS = pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
old_email, new_email = Old["SendEmail"], New["SendEmail"]


def codec(cls: Any, *, binary: bool = False) -> Any:
    return codec_of(Annotated[cls, BINARY] if binary else cls)


def sent(writer: Any, reader: Any, message: Any, *, binary: bool) -> Any:
    """Return a message of one schema as the code with another one reads it."""
    payload = codec(writer, binary=binary).encode({"message": message})
    return codec(reader).decode(payload)["message"]


@FORMS
def test_an_older_worker_ignores_the_fields_of_a_newer_producer(binary: bool) -> None:
    email = new_email(to="ada", subject="hi", copies=["b"], reply=new_email(to="c"))
    read = sent(new_email, old_email, email, binary=binary)
    assert (read.to, read.color) == ("ada", 0)


@FORMS
def test_a_newer_worker_has_the_defaults_of_fields_that_an_older_producer_does_not_know(
    binary: bool,
) -> None:
    read = sent(old_email, new_email, old_email(to="ada", gone="x"), binary=binary)
    assert (read.to, read.subject, list(read.copies)) == ("ada", "", [])
    assert not read.HasField("reply")


@FORMS
def test_an_older_worker_keeps_the_number_of_a_newer_enum_value(binary: bool) -> None:
    assert sent(new_email, old_email, new_email(color=2), binary=binary).color == 2


def test_fields_of_a_newer_producer_stay_in_the_row() -> None:
    payload = codec(new_email).encode({"message": new_email(to="ada", subject="hi")})
    codec(old_email).decode(payload)
    assert codec(new_email).decode(payload)["message"].subject == "hi"


def test_an_older_program_that_passes_a_message_on_loses_nothing_of_it() -> None:
    """JSON has no place for fields that a class does not know: the message is stored as bytes."""
    newer = new_email(to="ada", subject="hi", color=2)
    received = old_email.FromString(newer.SerializeToString())
    payload = codec(old_email).encode({"message": received})
    assert json.loads(payload)["message"]["$protobuf"] == "shop.SendEmail"
    assert codec(new_email).decode(payload)["message"] == newer
    assert codec(old_email).decode(payload)["message"].to == "ada"


def test_an_older_program_loses_nothing_of_what_is_deep_in_a_message() -> None:
    newer = New["Envelope"](note="n")
    newer.detail.Pack(new_email(to="ada", subject="hi"))
    received = Old["Envelope"].FromString(newer.SerializeToString())
    payload = codec(Old["Envelope"]).encode({"message": received})
    assert codec(New["Envelope"]).decode(payload)["message"] == newer


def test_a_message_without_unknown_fields_stays_json() -> None:
    payload = codec(old_email).encode({"message": old_email(to="ada")})
    assert json.loads(payload) == {"message": {"to": "ada"}}
    envelope = Old["Envelope"](note="n")
    envelope.detail.Pack(old_email(to="ada"))
    stored = json.loads(codec(Old["Envelope"]).encode({"message": envelope}))
    assert stored["message"]["detail"]["to"] == "ada"


def test_the_value_of_a_closed_enum_that_is_not_known_is_not_lost() -> None:
    older, newer = (
        message_classes({"Paint": {"color": "1 shop.Hue"}}, {"Hue": hues}, syntax="proto2")["Paint"]
        for hues in ({"RED": 1}, {"RED": 1, "BLUE": 2})
    )
    received = older.FromString(newer(color=2).SerializeToString())
    payload = codec(older).encode({"message": received})
    assert codec(newer).decode(payload)["message"].color == 2


def test_a_renamed_field_is_lost_in_json_and_kept_in_bytes() -> None:
    before, after = (
        message_classes({"Mail": {name: "1 string"}})["Mail"] for name in ("to", "recipient")
    )
    message = before(to="ada")
    assert sent(before, after, message, binary=False) == after()
    assert sent(before, after, message, binary=True) == after(recipient="ada")


def test_a_number_with_a_new_meaning_is_noticed_in_json_only() -> None:
    before = message_classes({"Mail": {"to": "1 string"}})["Mail"]
    after = message_classes({"Mail": {"to": "1 int32"}})["Mail"]
    with pytest.raises(PayloadInvalid, match=r"'message\.to': int32 is expected"):
        sent(before, after, before(to="ada"), binary=False)
    assert sent(before, after, before(to="ada"), binary=True).to == 0


@pytest.mark.parametrize(("before", "after"), [("int32", "int64"), ("int64", "int32")])
@FORMS
def test_an_integer_may_change_its_width(before: str, after: str, binary: bool) -> None:
    older, newer = (message_classes({"M": {"n": f"1 {of}"}})["M"] for of in (before, after))
    assert sent(older, newer, older(n=7), binary=binary).n == 7


@FORMS
def test_a_field_may_become_part_of_a_oneof(binary: bool) -> None:
    older = message_classes({"M": {"a": "1 string"}})["M"]
    newer = message_classes({"M": {"a": "1 string in x", "b": "2 string in x"}})["M"]
    assert sent(older, newer, older(a="1"), binary=binary).WhichOneof("x") == "a"


def test_text_that_became_a_message_is_refused_and_not_an_empty_message() -> None:
    older = message_classes({"M": {"a": "1 string"}})["M"]
    newer = message_classes({"M": {"a": "1 shop.A"}, "A": {"b": "1 string"}})["M"]
    with pytest.raises(PayloadInvalid, match=r"'message\.a': an object is expected, got text"):
        sent(older, newer, older(a="text"), binary=False)


def test_the_form_may_change_while_jobs_wait() -> None:
    message = new_email(to="ada")
    for before, after in ((False, True), (True, False)):
        payload = codec(new_email, binary=before).encode({"message": message})
        assert codec(new_email, binary=after).decode(payload) == {"message": message}


@FORMS
def test_a_field_may_be_removed(binary: bool) -> None:
    before = message_classes({"M": {"a": "1 string", "b": "2 string"}})["M"]
    after = message_classes({"M": {"a": "1 string"}})["M"]
    assert sent(before, after, before(a="1", b="2"), binary=binary).a == "1"
    assert sent(after, before, after(a="1"), binary=binary) == before(a="1")


@FORMS
def test_a_value_of_an_enum_may_be_renamed(binary: bool) -> None:
    before, after = (
        message_classes({"M": {"a": "1 shop.E"}}, {"E": {"NONE": 0, name: 1}})["M"]
        for name in ("RED", "CRIMSON")
    )
    assert sent(before, after, before(a=1), binary=binary).a == 1


def test_another_number_is_read_in_json_and_lost_in_bytes() -> None:
    before, after = (message_classes({"M": {"a": f"{number} string"}})["M"] for number in (1, 2))
    assert sent(before, after, before(a="x"), binary=False).a == "x"
    assert sent(before, after, before(a="x"), binary=True).a == ""


def test_a_renamed_message_is_read_in_json_and_refused_in_bytes() -> None:
    before = message_classes({"M": {"a": "1 string"}})["M"]
    after = message_classes({"M": {"a": "1 string"}}, package="store")["M"]
    assert sent(before, after, before(a="x"), binary=False).a == "x"
    with pytest.raises(PayloadInvalid, match=r"a store\.M is expected, got a shop\.M"):
        sent(before, after, before(a="x"), binary=True)


def test_a_field_that_became_a_list_is_refused_in_json_and_read_in_bytes() -> None:
    before = message_classes({"M": {"a": "1 string"}})["M"]
    after = message_classes({"M": {"a": "1 repeated string"}})["M"]
    with pytest.raises(PayloadInvalid, match=r"'message\.a': an array is expected, got text"):
        sent(before, after, before(a="x"), binary=False)
    assert list(sent(before, after, before(a="x"), binary=True).a) == ["x"]
