"""The messages of a shop, in an older and a newer schema, and codecs for them."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

from tests.support.protobuf_messages import message_classes
from windlass.core.payloads.codec import PayloadCodec
from windlass.core.payloads.secret import Cipher

COLORS = {"Color": {"NONE": 0, "RED": 1}}
SHOP = message_classes(
    {
        "Attachment": {
            "name": "1 string",
            "data": "2 bytes",
            "parts": "3 repeated shop.Attachment",
        },
        "SendEmail": {
            "to_address": "1 string",
            "tries": "2 int64",
            "color": "3 shop.Color",
            "files": "4 repeated shop.Attachment",
            "counts": "5 map string int32",
            "text": "6 string in body",
            "html": "7 string in body",
            "cover": "8 shop.Attachment",
            "ratio": "9 double",
            "share": "10 float",
            "urgent": "11 bool",
            "by_name": "12 map string shop.Attachment",
        },
        "SendSms": {"number": "1 string"},
        "Record": {
            "at": "1 google.protobuf.Timestamp",
            "lasts": "2 google.protobuf.Duration",
            "extra": "3 google.protobuf.Struct",
            "detail": "4 google.protobuf.Any",
            "limit": "5 google.protobuf.Int64Value",
            "value": "6 google.protobuf.Value",
        },
    },
    COLORS,
)
SendEmail, Attachment, SendSms, Record = (
    SHOP[name] for name in ("SendEmail", "Attachment", "SendSms", "Record")
)
Old = message_classes(
    {
        "SendEmail": {"to": "1 string", "color": "3 shop.Color", "gone": "4 string"},
        "Envelope": {"detail": "1 google.protobuf.Any", "note": "2 string"},
    },
    COLORS,
)
New = message_classes(
    {
        "SendEmail": {
            "to": "1 string",
            "color": "3 shop.Color",
            "subject": "5 string",
            "copies": "6 repeated string",
            "reply": "7 shop.SendEmail",
        },
        "Envelope": {"detail": "1 google.protobuf.Any", "note": "2 string"},
    },
    {"Color": {"NONE": 0, "RED": 1, "BLUE": 2}},
)


def codec_of(hint: Any, cipher: Cipher | None = None, **defaults: Any) -> PayloadCodec:
    """Return the codec of a handler with the parameter `message` of this type."""
    parameter = Parameter(
        "message",
        Parameter.KEYWORD_ONLY,
        annotation=hint,
        default=defaults.get("default", Parameter.empty),
    )
    return PayloadCodec.for_parameters("send", {"message": parameter}, cipher=cipher)
