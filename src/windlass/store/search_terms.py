"""Owns how the terms of a search become conditions in SQL: named fragments, and bound values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windlass.core.search.matching import fingerprint_digits, id_digits, ids_of, lower
from windlass.core.search.terms import RETRYING, Field, Term

_PART = "path_"


def conditions(
    fragments: Mapping[str, str], terms: Sequence[Term], listed: Callable[[list[Any]], Any]
) -> tuple[str, dict[str, Any]]:
    """Return what follows a WHERE clause for these terms, and the values that it binds.

    `{n}` in a fragment stands for the beginning of its values' names. A store binds a list as
    `listed` returns it. One that has a fragment for parts of a path gets it in parts, each of which
    but the first begins with a step from the end of a list.
    """
    sql: list[str] = []
    values: dict[str, Any] = {}
    for number, term in enumerate(terms):
        name, bound = f"t{number}", _values(term, in_parts="document_part" in fragments)
        fragment = _fragment(fragments, term, bound).replace("{n}", name)
        sql.append(f"AND {'NOT ' if term.negated else ''}({fragment})")
        values |= {f"{name}_{key}": listed(value) for key, value in bound.items()}
    return "\n".join(sql), values


def _fragment(fragments: Mapping[str, str], term: Term, bound: Mapping[str, list[Any]]) -> str:
    field = term.field.value
    if "prefixes" not in bound:
        return fragments[field]
    # Only what is asked for: a value in a document is found by reading all of it.
    wanted = [each for each in ("equal", "prefixes") if bound[each]]
    choices = [fragments.get(f"{field}_{each}") or fragments[each] for each in wanted]
    frame = fragments.get(f"{field}_frame") or fragments["frame"]
    filled = frame.replace("{choices}", " OR ".join(choices)).replace("{text}", fragments[field])
    document = fragments.get("document", "")
    for part in (key for key in bound if key.startswith(_PART)):
        inside = fragments["document_part"].replace("{document}", document)
        document = inside.replace("{part}", part)
    filled = filled.replace("{document}", document)
    return filled.replace("{unreadable}", fragments.get("unreadable", ""))


def _values(term: Term, *, in_parts: bool) -> dict[str, list[Any]]:
    match term.field:
        case Field.ID | Field.FLOW:
            ranges = [ids_of(term, value) for value in term.values]
            return {"first": [low for low, _ in ranges], "last": [high for _, high in ranges]}
        case Field.STATE:
            names = [value.text for value in term.values]
            return {"equal": names, "retrying": [name for name in names if name == RETRYING]}
        case Field.ERROR | Field.TEXT:
            found = {
                "texts": [lower(value.text) for value in term.values],
                "groups": [each for value in term.values if (each := fingerprint_digits(value))],
            }
            if term.field is Field.TEXT:
                found["ids"] = [each for value in term.values if (each := id_digits(value))]
            return found
    return _texts(term) | (_path(term.path, in_parts=in_parts) if term.path else {})


def _texts(term: Term) -> dict[str, list[Any]]:
    equal = [value.text for value in term.values if not value.is_prefix]
    prefixes = [value.text for value in term.values if value.is_prefix]
    if term.field is Field.WORKER:
        prefixes += [f"{text}:" for text in equal]
    return {"equal": equal, "prefixes": prefixes}


def _path(path: Sequence[str], *, in_parts: bool) -> dict[str, list[Any]]:
    """Return a path, or its parts: those before the last one have numbers."""
    cuts = [at for at, step in enumerate(path) if at and in_parts and step.lstrip()[:1] == "-"]
    bounds = [*zip([0, *cuts], [*cuts, len(path)], strict=True)]
    parts = [list(path[first:end]) for first, end in bounds]
    return {f"{_PART}{number}": part for number, part in enumerate(parts[:-1])} | {
        "path": parts[-1]
    }
