"""What is hidden in a message is recognised in other text, however deep it is."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Annotated

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue

from windlass import Protobuf, Secret
from windlass.core.payloads.protobuf.hints import messages_in
from windlass.core.payloads.secret import texts_of


def test_every_text_of_nested_messages_is_known_and_no_key_of_a_map() -> None:
    """Prevents: a part of a message is taken for another that was freed, and is not masked."""
    file = FileDescriptorProto()
    names = {f"secret-{row}-{column}" for row in range(6) for column in range(4)}
    for row in range(6):
        message = file.message_type.add(name=f"row-{row}")
        for column in range(4):
            message.field.add(name=f"secret-{row}-{column}")
    assert names <= set(texts_of(Secret(file)))
    card = Struct()
    card.update({"card": {"cvc": {"v": "98765"}}})
    assert set(texts_of(Secret(card))) == {"98765"}


@dataclass
class Notes:
    """The part that has messages."""

    notes: list[Annotated[StringValue, Protobuf(binary=True)]]


@dataclass
class Others:
    """A part that has none, whose types are made anew whenever they are read."""

    counts: dict[str, list[int]]


def test_messages_are_found_in_every_part_of_a_type() -> None:
    """Prevents: a type is taken for another that was freed, and its messages are not known."""
    for count in range(1, 30):
        fields = [("notes", Notes), *((f"other{number}", Others) for number in range(count))]
        plain = [(f"plain{number}", hint) for number, hint in enumerate(("list[str]", "list[int]"))]
        order = make_dataclass("Order", [*fields, *plain])
        assert messages_in(order).binary == {"google.protobuf.StringValue"}
