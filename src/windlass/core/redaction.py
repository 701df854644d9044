"""Owns what is masked before text or values are stored as errors, logged or shown.

What is masked: fields by their names, passwords in URLs, private keys, and the secrets that a run
knows. A value that is begun and never ended, since the text was cut off, is masked to the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import copy
from typing import Any
from urllib.parse import quote

from windlass.core.secret import MARK, SHOWN, Secret

MASK = "***"
USUAL = (
    "password", "passwords", "passwd", "pwd", "passphrase", "secret", "secrets", "token",
    "api_?key", "access_?key", "private_?key", "encryption_?keys?", "authorization",
    "credentials?", "cookie", "card", "cvc", "cvv", "ssn", "iban",
)  # fmt: skip
"""The names that are always masked, unless they are taken out."""
_SHORTEST = 3
"""A shorter text is no secret that could be told from the rest."""
_MANY = 10_000
_DEEPEST = 200
"""What is nested deeper, or in itself, is masked as a whole."""
_NAME = re.compile(r"(?<!\w)(\w[\w-]{0,80})(\\*[\"'])?\s{0,3}(?:=>|[:=])\s{0,3}")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_QUOTED = re.compile(
    r"""("{3}|'{3}).*?(?:\1|\Z)|(["'])(?:(?!\2)[^\\]|\\.)*(?:\2|\\?\Z)|(\\+["']).*?(?:\3|\Z)""",
    re.DOTALL,
)
_BLOCK = re.compile(r"[|>][+-]?[ \t]*(?:\n[ \t]+[^\n]*)+")
"""Lines that are indented below a name, as YAML has them."""
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie2?", re.IGNORECASE)
_LINE = re.compile(r"[^\n]+")
_BARE = re.compile(
    r"""["']?(?:(?:bearer|basic|token|digest)\s+)?[^\s,;&"')\]}<>]+""", re.IGNORECASE
)
_LITERAL = re.compile(r"""["']?-?\d[\w.+-]*|["'][^\s,;&"')\]}<>]+""")
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_URL = re.compile(r"""(?:\b[A-Za-z][\w+.-]{0,40})?://[^\s'"<>]+""")
_PASSWORD = re.compile(r"(://[^:/@]*):.*@", re.DOTALL)
_USER = re.compile(r"([\w+.-]{0,40})://([^:/@?#]+)@")
_NAMED = frozenset({"postgresql", "postgres", "mysql", "mariadb", "ssh", "sftp", "amqp", "amqps"})
"""Where a user alone is a name; elsewhere it is a token."""
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    r".*?(?:(-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)|\Z)",
    re.DOTALL,
)


class Redaction:
    """Masks what is not to be seen.

    A pattern is a regular expression for a field's name, or for some words of it: `card` hides
    `card`, `card_number` and `creditCard`, and not `discard`. One that begins with `-` takes a
    usual name out.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Mask the usual names, and these.

        Raises:
            ValueError: a pattern is no regular expression.
        """
        given = tuple(patterns)
        out = {pattern[1:] for pattern in given if pattern.startswith("-")}
        names = [name for name in USUAL if name not in out]
        names += [pattern for pattern in given if not pattern.startswith("-")]
        try:
            for name in names:
                re.compile(name)
            joined = "|".join(f"(?:{name})" for name in names)
            self._hidden = re.compile(rf"(?:^|_)(?:{joined})(?:_|$)", re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"{error} in a pattern for what is redacted") from None
        self._verdicts: dict[str, bool] = {}
        self._texts: tuple[str, ...] = ()
        self._known: re.Pattern[str] | None = None

    def knowing(self, texts: Iterable[str]) -> Redaction:
        """Return one that masks these texts, too, wherever they stand."""
        other = copy(self)  # It shares what was compiled, and what is known about names.
        other._texts = tuple(dict.fromkeys((*self._texts, *texts)))
        other._known = _any_of(other._texts)
        return other

    def hides(self, name: str) -> bool:
        """Say whether a field of this name is masked."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            plain = "_".join(part for part in _WORDS.split(name) if part)
            verdict = bool(self._hidden.search(plain) or self._hidden.search(name))
            if len(self._verdicts) < _MANY:  # Names can come from payloads, without end.
                self._verdicts[name] = verdict
        return verdict

    def value(self, value: Any, *, depth: int = 0) -> Any:
        """Return a value as it may be seen, with the fields masked whose names say so."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict | list | tuple) and depth > _DEEPEST:
            return MASK
        if isinstance(value, dict):
            if _is_sealed(value):
                return SHOWN
            return {name: self.field(name, each, depth=depth) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, depth=depth + 1) for each in value]
        if value is None or isinstance(value, bool | Secret):
            return value
        if self._known is not None and self._known.search(str(value)):
            return MASK
        return value

    def field(self, name: object, value: Any, *, depth: int = 0) -> Any:
        """Return a field's value as it may be seen."""
        if isinstance(name, str) and self.hides(name) and not _is_mask_of_itself(value):
            return MASK
        return self.value(value, depth=depth + 1)

    def text(self, text: str, *, code: bool = False) -> str:
        """Return text with `password=...` and the like masked, and URLs without passwords.

        In `code` only literals are masked: `token = login(user)` tells nothing, and is needed.
        """
        if self._known is not None:
            text = self._known.sub(MASK, text)
        if "PRIVATE KEY" in text:
            text = _PRIVATE_KEY.sub(lambda key: f"{key[1]}{MASK}{key[2] or ''}", text)
        if "://" in text and "@" in text:
            text = _URL.sub(_without_password, text)
        if ":" in text or "=" in text:
            text = self._masked_fields(text, code=code)
        return _BEARER.sub(rf"\1 {MASK}", text) if "earer" in text or "asic" in text else text

    def _masked_fields(self, text: str, *, code: bool) -> str:
        parts: list[str] = []
        end = 0
        for name in _NAME.finditer(text):
            if name.start() < end or not self.hides(name[1]):
                continue
            value, mark = _QUOTED.match(text, name.end()), name[2] or ""
            if value is not None:
                mark = value[1] or value[2] or value[3]
            else:
                value = _unquoted(text, name, code=code)
            if value is not None:
                parts += (text[end : value.start()], f"{mark}{MASK}{mark}")
                end = value.end()
        return "".join((*parts, text[end:])) if parts else text


def _unquoted(text: str, name: re.Match[str], *, code: bool) -> re.Match[str] | None:
    """Return the value that follows a name without quotes."""
    at = name.end()
    if name[2] or code:
        # After a quoted name only what a literal is: `field 'card': it is ...` is prose.
        return _LITERAL.match(text, at)
    if ":" in name[0]:
        if (block := _BLOCK.match(text, at)) is not None:
            return block
        if _HEADER.fullmatch(name[1]) and _begins_line(text, name.start()):
            return _LINE.match(text, at)
    return _BARE.match(text, at)


def _begins_line(text: str, at: int) -> bool:
    """Say whether nothing stands before a place on its line but what shows where it went."""
    return not text[max(at - 40, 0) : at].rpartition("\n")[2].strip("<> \t")


def _without_password(url: re.Match[str]) -> str:
    """Return a URL without its password, or without a user alone."""
    if "@" not in url[0]:
        return url[0]
    text, count = _PASSWORD.subn(rf"\1:{MASK}@", url[0])
    return text if count else _USER.sub(_without_user, text)


def _without_user(url: re.Match[str]) -> str:
    is_name = not _NAMED.isdisjoint(url[1].lower().split("+"))
    return url[0] if is_name else f"{url[1]}://{MASK}@"


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and MARK in value and len(value) == 1


def _is_mask_of_itself(value: Any) -> bool:
    """Say whether a value gives nothing away, and is worth seeing: nothing, or a secret as such."""
    return value is None or value == "" or isinstance(value, Secret) or _is_sealed(value)


def _any_of(known: Iterable[str]) -> re.Pattern[str] | None:
    """Match any of these texts, also as they are written in reprs, JSON and URLs."""
    forms: set[str] = set()
    for text in known:
        if len(text) >= _SHORTEST:
            as_json = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
            forms |= {text, repr(text)[1:-1], *as_json, _quoted(text)}
    if not forms:
        return None
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")
