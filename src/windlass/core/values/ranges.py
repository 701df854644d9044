"""Owns how people write a number that may vary: "5..100" is from 5 to 100, and "8" is always 8."""

from __future__ import annotations

import re

from msgspec import Struct

_WRITTEN = re.compile(r"\s*(\d{1,18})\s*(?:\.\.\s*(\d{1,18})\s*)?", re.ASCII)
REMEDY = "a whole number like 8, or a range like 5..100"


class Bounds(Struct, frozen=True, kw_only=True):
    """The least and the most of a number that follows the load; `str()` writes it as people do."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(
                f"a range must be ascending and above zero, got {self.least}..{self.most}; write "
                f"{REMEDY}"
            )

    @classmethod
    def of(cls, number: int) -> Bounds:
        return cls(least=number, most=number)

    @classmethod
    def read(cls, raw: object) -> Bounds:
        """Read what people write: `8`, `"8"`, `"5..100"`, or bounds as they are."""
        if isinstance(raw, Bounds):
            return raw
        if isinstance(raw, int) and not isinstance(raw, bool):
            return cls.of(raw)
        written = _WRITTEN.fullmatch(raw) if isinstance(raw, str) else None
        if written is None:
            raise ValueError(f"{raw!r} is neither a number nor a range; write {REMEDY}")
        least, most = written.groups()
        return cls(least=int(least), most=int(most or least))

    @property
    def fixed(self) -> bool:
        return self.least == self.most

    def clamp(self, number: int) -> int:
        return min(max(number, self.least), self.most)

    def __str__(self) -> str:
        return str(self.least) if self.fixed else f"{self.least}..{self.most}"
