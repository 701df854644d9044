"""Owns a search as a whole: its terms, all of which a job must meet."""

from __future__ import annotations

from msgspec import Struct

from windlass.core.jobs.ids import ending_of, read_id
from windlass.core.search.terms import WITH_PATH, Field, Term


class Search(Struct, frozen=True):
    """What `parse` has read; `str(search)` writes it so that it is read as the same search."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    @property
    def job_id(self) -> str | None:
        """A text that is an id, or eight digits or more of one, and the whole search."""
        if len(self.terms) != 1 or self.terms[0].field is not Field.TEXT or self.terms[0].negated:
            return None
        text = self.terms[0].values[0].text
        try:
            first, last = read_id(text)
        except ValueError:
            return None
        return text if first == last or ending_of(text) else None

    @property
    def needs_clock(self) -> bool:
        """Whether it depends on the time at which it is made."""
        return any(term.field in (Field.SINCE, Field.UNTIL) for term in self.terms)

    @property
    def inner_names(self) -> tuple[str, ...]:
        """The names of fields in payloads and headers that it reads, for those who mask them."""
        return tuple(step for term in self.terms if term.field in WITH_PATH for step in term.path)
