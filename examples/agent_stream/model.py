"""Stands for a language model with a tool: it streams words, and loses its connection once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

_STOCK = {"rope": 12, "pawl": 3}


class Model:
    """Answers by rote. Every use of the tool is counted, since each would cost money."""

    def __init__(self) -> None:
        self.lookups = 0
        self._has_failed = False

    async def look_up(self, article: str) -> int:
        """Return how many of an article are in stock: the tool that the model chose."""
        self.lookups += 1
        await asyncio.sleep(0.01)
        return _STOCK.get(article, 0)

    async def write(self, article: str, stock: int) -> AsyncIterator[str]:
        """Stream the answer; the first time, the connection is reset after four words."""
        for number, word in enumerate(f"We have {stock} pieces of {article} in stock.".split()):
            await asyncio.sleep(0.01)
            if number == 4 and not self._has_failed:
                self._has_failed = True
                raise ConnectionResetError("the model closed the connection")
            yield f"{word} "
