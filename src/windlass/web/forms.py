"""Owns how forms and JSON documents of requests are read: bounded, and checked by their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from windlass.web.payload_form.names import PREFIX

T = TypeVar("T", bound=msgspec.Struct)
MAX_BODY_BYTES = 2 * 1024 * 1024
_MAX_FIELDS = 250


async def body_of(request: Request) -> bytes:
    """Read a body up to its bound.

    Raises:
        HTTPException: it is larger.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, f"a body must have at most {MAX_BODY_BYTES:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def form_of(request: Request) -> dict[str, str]:
    """Read the fields of a form; empty ones are left out, but for those of a payload."""
    text = (await body_of(request)).decode(errors="replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise HTTPException(422, f"a form must have at most {_MAX_FIELDS} fields") from None
    return {
        name: value.replace("\r\n", "\n")
        for name, value in pairs
        if value or name.startswith(PREFIX)
    }


def query_of(request: Request) -> dict[str, str]:
    """Read the parameters of an address, each of which may be given once.

    Raises:
        HTTPException: one is given twice.
    """
    pairs = request.query_params.multi_items()
    if len(pairs) != len(dict(pairs)):
        raise HTTPException(422, "a parameter is given twice; leave one out")
    return dict(pairs)


async def document_of(request: Request) -> Any:
    """Read a JSON document; an empty body is an empty object.

    Raises:
        HTTPException: it is not JSON.
    """
    body = await body_of(request)
    try:
        return json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None


def read(fields: Mapping[str, Any], into: type[T], *, strict: bool = False) -> T:
    """Read fields as a struct; unless `strict`, text is converted to what the type asks for.

    Raises:
        HTTPException: a field is missing, or has the wrong type.
    """
    if not isinstance(fields, Mapping):
        raise HTTPException(422, "the body must be a JSON object")
    known = set(into.__struct_fields__)
    if unknown := sorted(set(map(str, fields)) - known):
        names = ", ".join(sorted(known))
        raise HTTPException(422, f"there is no field {unknown[0]!r}; the fields are {names}")
    try:
        return msgspec.convert(dict(fields), into, strict=strict)
    except msgspec.ValidationError as error:
        raise HTTPException(422, str(error)) from None
