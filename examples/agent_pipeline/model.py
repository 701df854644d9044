"""Stands for a language model: slow, dear, and sometimes away."""

from __future__ import annotations

import asyncio

_KNOWN = {
    "windlass": "It hauls a load, and has a pawl.",
    "pawl": "It keeps the load from slipping.",
}


class Model:
    """Answers by rote; every call is counted, since every call would cost money."""

    def __init__(self) -> None:
        self.calls = 0
        self._has_failed = False

    async def plan(self, question: str) -> list[dict[str, str]]:
        """Say which tools are to be used, and on what."""
        await self._think()
        return [{"tool": "define", "word": word} for word in _KNOWN if word in question.lower()]

    async def define(self, word: str) -> str:
        """Tell what a word means; the first time that fails, as networks do."""
        await self._think()
        if not self._has_failed:
            self._has_failed = True
            raise ConnectionResetError("the line was cut")
        return _KNOWN[word]

    async def write(self, question: str, facts: list[str]) -> str:
        """Write the answer."""
        await self._think()
        return f"{question} {' '.join(facts)}"

    async def _think(self) -> None:
        self.calls += 1
        await asyncio.sleep(0.02)
