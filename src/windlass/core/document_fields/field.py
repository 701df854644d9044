"""Owns what is known about a field of a JSON document: its meaning, and the shape of its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a document: what it means, and the shape of its value or of its elements."""

    text: str
    shape: str = ""


Fields = Mapping[str, Field | str]
"""The fields of a shape, by their names; a text alone is a field with a plain value."""
EACH = "*"
"""Stands for every name in an object whose names are data, such as settings."""
