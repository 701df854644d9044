"""The shop's books: what is reserved, and what was paid, each once for a key."""

from __future__ import annotations


class Books:
    """Stands for the services of others, which take a key so that nothing is done twice."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._paid: dict[str, int] = {}
        self._refunded: set[str] = set()

    def reserve(self, order: str) -> None:
        """Put the goods aside."""
        self.lines.append(f"{order}: reserved")

    def release(self, order: str) -> None:
        """Put them back."""
        self.lines.append(f"{order}: released")

    def charge(self, order: str, amount: int, *, key: str) -> str:
        """Take the money, unless that was done for this key."""
        if key not in self._paid:
            self._paid[key] = amount
            self.lines.append(f"{order}: charged {amount}")
        return f"{amount} paid"

    def refund(self, order: str, amount: int, *, key: str) -> None:
        """Give it back, if it was taken for this key, and was not given back before."""
        if key in self._paid and key not in self._refunded:
            self._refunded.add(key)
            self.lines.append(f"{order}: refunded {amount}")
