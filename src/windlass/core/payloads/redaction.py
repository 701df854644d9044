"""Owns the masking of text and values before they are stored as errors, logged or shown.

Masked are fields by their names, passwords in URLs, private keys, JSON web tokens, and the secrets
that a run knows. A value that begins and does not end, because the text was cut off, is masked to
the end.

The text comes from outside, and masking runs in the event loop's thread: every step here takes
linear time. No expression may start again inside of text that it has already read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import copy
from typing import Any
from urllib.parse import quote

from windlass.core.payloads.protobuf.forms import is_binary_form, without_bytes
from windlass.core.payloads.secret import MARK, SHOWN, Secret

MASK = "***"
USUAL = (
    "password", "passwords", "passwd", "pwd", "passphrase", "secret", "secrets", "token", "jwt",
    "api_?key", "access_?key", "private_?key", "secret_?key", "encryption_?keys?",
    "authorization", "credentials?", "cookies?", "session_?ids?", "sessid", "session_?key",
    "card", "cvc", "cvv", "ssn", "iban",
)  # fmt: skip
"""Names that are always masked, unless they are taken out."""
_GLUED = frozenset({
    "password", "passwd", "passphrase", "secret", "token", "api_?key", "session_?ids?", "sessid",
})  # fmt: skip
"""Names that also count at the end of a longer word, as in `PGPASSWORD` or `authtoken`."""
_MIN_SECRET = 3
"""A shorter secret cannot be distinguished from ordinary text."""
_MAX_VERDICTS = 10_000
_MAX_NAME = 200
_MAX_DEPTH = 200
"""Values that are nested deeper, or in themselves, are masked as a whole."""
MAX_TEXT = 200_000
"""Characters of a text that are kept: masking them blocks an event loop for some 20 ms."""
_MAX_WORD = 4_096
_NAME = re.compile(
    r"(?<![\w-])-*+(\w[\w-]*+)(\\*+[\"'])?+\s{0,3}(?::=|=>|==|[:=])\s{0,3}"
    r"|\b(passw(?:or)?d|identified\s{1,3}by)\s{1,3}(?=[\"'])",
    re.IGNORECASE,
)
_MARKS = (":", "=", "'", '"')
"""Text without any of these has no field with a value."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_QUOTED = re.compile(
    r"""("{3}|'{3}).*?(?:\1|\Z)|(["'])(?:(?!\2)[^\\]|\\.)*(?:\2|\\?\Z)|(\\{1,16}["']).*?(?:\3|\Z)""",
    re.DOTALL,
)
_BLOCK = re.compile(r"[|>][+-]?[ \t]*(?:\n[ \t]+[^\n]*)+")
"""Lines that are indented below a name, as in YAML."""
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie2?", re.IGNORECASE)
_LINE = re.compile(r"[^\n]+")
_BARE = re.compile(
    r"""["']?(?:(?:bearer|basic|token|digest)\s+)?[^\s,;&"')\]}<>]+""", re.IGNORECASE
)
_LITERAL = re.compile(r"""["']?-?\d[\w.+-]*|["'][^\s,;&"')\]}<>]+""")
_BRACKET = re.compile(r"""[(\[{]|[)\]}]|(["'])(?:(?!\1)[^\\]|\\.)*+(?:\1|\\?\Z)""", re.DOTALL)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_WEB_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?")
_URL = re.compile(r"""://[^\s'"<>]+""")
_USER_AND_PASSWORD = re.compile(r"://[^:/@]*+:")
_USER_ALONE = re.compile(r"://([^:/@?#]++)@")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*\Z")
_MAX_SCHEME = 40
_NAMED = frozenset({"postgresql", "postgres", "mysql", "mariadb", "ssh", "sftp", "amqp", "amqps"})
"""Schemes in whose URLs a user part without password is a name; elsewhere it is a token."""
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    r".*?(?:(-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)|\Z)",
    re.DOTALL,
)


class Redaction:
    """Masks secrets in text and values.

    A pattern is a regular expression for a field's name, or for some words of it: `card` hides
    `card`, `card_number` and `creditCard`, and not `discard`. A pattern that begins with `-` takes
    a usual name out.
    """

    def __init__(self, patterns: Iterable[str] = (), *, max_text: int = MAX_TEXT) -> None:
        """Mask the usual names, and these; of a longer text than `max_text` keep the beginning.

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
            joined = "|".join(
                f"[a-z0-9]*(?:{name})" if name in _GLUED else f"(?:{name})" for name in names
            )
            self._hidden = re.compile(rf"(?:^|_)(?:{joined})(?:_|$)", re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"{error} in a redaction pattern") from None
        self._max_text = max_text
        self._verdicts: dict[str, bool] = {}
        self._texts: tuple[str, ...] = ()
        self._known: tuple[str, ...] = ()

    def knowing(self, texts: Iterable[str]) -> Redaction:
        """Return a redaction that also masks these texts, wherever they occur."""
        other = copy(self)  # Shares the compiled patterns and the cache of names.
        other._texts = tuple(dict.fromkeys((*self._texts, *texts)))
        other._known = _forms_of(other._texts)
        return other

    def hides(self, name: str) -> bool:
        name = name[-_MAX_NAME:]
        verdict = self._verdicts.get(name)
        if verdict is None:
            plain = "_".join(part for part in _WORDS.split(name) if part)
            verdict = bool(self._hidden.search(plain) or self._hidden.search(name))
            if len(self._verdicts) < _MAX_VERDICTS:  # Names can come from payloads, without end.
                self._verdicts[name] = verdict
        return verdict

    def value(self, value: Any, *, depth: int = 0) -> Any:
        """Return a value with the fields masked whose names require it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict | list | tuple) and depth > _MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            if _is_sealed(value):
                return SHOWN
            if is_binary_form(value):
                return without_bytes(value)  # Its fields have no names here to mask it by.
            return {name: self.field(name, each, depth=depth) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, depth=depth + 1) for each in value]
        if value is None or isinstance(value, bool | Secret):
            return value
        if self._known and self._knows(str(value)):
            return MASK
        return value

    def field(self, name: object, value: Any, *, depth: int = 0) -> Any:
        """Return a field's value, masked if its name requires it."""
        if isinstance(name, str) and self.hides(name) and not _is_mask_of_itself(value):
            return MASK
        return self.value(value, depth=depth + 1)

    def text(self, text: str, *, code: bool = False, limit: int | None = None) -> str:
        """Return text with `password=...` and the like masked, and URLs without passwords.

        In `code` only literals are masked: `token = login(user)` reveals nothing, and is needed. Of
        a text that is longer than the limit, the beginning is kept.
        """
        limit = self._max_text if limit is None else min(limit, self._max_text)
        left_out = max(len(text) - limit, 0)
        if left_out or self._known:
            text = self._without_known(text, limit)
        if "PRIVATE KEY" in text:
            text = _PRIVATE_KEY.sub(lambda key: f"{key[1]}{MASK}{key[2] or ''}", text)
        if "://" in text and "@" in text:
            text = _URL.sub(_without_password, text)
        if "eyJ" in text:
            text = _WEB_TOKEN.sub(MASK, text)
        if any(mark in text for mark in _MARKS):
            text = self._masked_fields(text, code=code)
        if "earer" in text or "asic" in text:
            text = _BEARER.sub(rf"\1 {MASK}", text)
        return f"{text}\n... {left_out:,} characters left out" if left_out else text

    def _knows(self, text: str) -> bool:
        return any(known in text for known in self._known)

    def _without_known(self, text: str, limit: int) -> str:
        """Mask the known texts, and cut a long text without leaving part of a secret at its end."""
        is_cut = len(text) > limit
        longest = len(self._known[0]) if self._known else 0
        text = text[: limit + longest]
        for known in self._known:
            text = text.replace(known, MASK)
        return _whole_words(text[: len(text) - longest]) if is_cut else text

    def _masked_fields(self, text: str, *, code: bool) -> str:
        parts: list[str] = []
        end = 0
        for name in _NAME.finditer(text):
            if name.start() < end or not (name[3] or self.hides(name[1])):
                continue
            value, mark = _QUOTED.match(text, name.end()), name[2] or ""
            if value is not None:
                start, stop = value.span()
                mark = value[1] or value[2] or value[3]
            elif (span := _unquoted(text, name, code=code)) is not None:
                start, stop = span
            else:
                continue
            parts += (text[end:start], f"{mark}{MASK}{mark}")
            end = stop
        return "".join((*parts, text[end:])) if parts else text


def _whole_words(text: str) -> str:
    # The last word of a text that was cut may be half a password.
    start = max(map(text.rfind, " \t\n")) + 1
    if len(text) - start <= _MAX_WORD:
        return text[:start]
    url = text.find("://", start)
    return text if url < 0 else text[:url]


def _unquoted(text: str, name: re.Match[str], *, code: bool) -> tuple[int, int] | None:
    at = name.end()
    if name[2] or code:
        # After a quoted name only literals are masked: `field 'card': it is ...` is prose.
        value = _LITERAL.match(text, at)
        if value is None and not code and text[at : at + 1] in ("{", "["):
            return at, _end_of_brackets(text, at)
        return None if value is None else value.span()
    if text[at : at + 1] in ("{", "[", "("):
        return at, _end_of_brackets(text, at)
    value = None
    if ":" in name[0]:
        value = _BLOCK.match(text, at)
        if value is None and _HEADER.fullmatch(name[1]) and _begins_line(text, name.start()):
            value = _LINE.match(text, at)
    value = value or _BARE.match(text, at)
    return None if value is None else value.span()


def _end_of_brackets(text: str, at: int) -> int:
    depth = 0
    for each in _BRACKET.finditer(text, at):
        if each[0] in "([{":
            depth += 1
        elif each[0] in ")]}":
            depth -= 1
            if depth == 0:
                return each.end()
    return len(text)


def _begins_line(text: str, at: int) -> bool:
    return not text[max(at - 40, 0) : at].rpartition("\n")[2].strip("<> \t")


def _without_password(url: re.Match[str]) -> str:
    """Return a URL, from its colon on, without its password or its only user part."""
    text = url[0]
    at = text.rfind("@")
    if at < 0:
        return text
    # A password may itself have an unescaped @ or /, so it ends at the last @.
    if (begin := _USER_AND_PASSWORD.search(text, 0, at)) is not None:
        return f"{text[: begin.end()]}{MASK}{text[at:]}"
    before = url.string[max(url.start() - _MAX_SCHEME, 0) : url.start()]
    return _USER_ALONE.sub(lambda user: _without_user(user, before), text)


def _without_user(user: re.Match[str], before: str) -> str:
    scheme = _SCHEME.search(before + user.string[max(user.start() - _MAX_SCHEME, 0) : user.start()])
    is_name = scheme is not None and not _NAMED.isdisjoint(scheme[0].lower().split("+"))
    return user[0] if is_name else f"://{MASK}@"


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and MARK in value and len(value) == 1


def _is_mask_of_itself(value: Any) -> bool:
    """Return whether a value reveals nothing and is worth showing: None, or a sealed secret."""
    return value is None or value == "" or isinstance(value, Secret) or _is_sealed(value)


def _forms_of(known: Iterable[str]) -> tuple[str, ...]:
    """Return the texts as written in reprs, JSON and URLs, the longest first."""
    forms: set[str] = set()
    for text in known:
        if len(text) >= _MIN_SECRET:
            as_json = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
            forms |= {text, repr(text)[1:-1], *as_json, _quoted(text)}
    return tuple(sorted(forms, key=len, reverse=True))


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")
