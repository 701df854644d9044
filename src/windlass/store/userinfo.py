"""Owns what is refused of a URL's user and password: characters to be escaped.

An unescaped password is taken apart: what follows a `/` or `@` becomes a host, a port or a
database, which errors then name. No message here quotes the password.
"""

from __future__ import annotations

import re

from windlass.core.errors import ConfigError

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
_ESCAPES = "'%' as %25, '/' as %2F, '@' as %40, ':' as %3A, '?' as %3F and a space as %20"


def check_userinfo(url: str, scheme: str) -> None:
    """Refuse a URL whose user or password has a character that must be escaped.

    Raises:
        ConfigError: there is such a character; the message does not show the password.
    """
    address, _, rest = url.partition("://")[2].partition("/")
    userinfo, _, hosts = address.rpartition("@")
    path, _, query = rest.partition("?")
    if "@" in path:
        raise unescaped("/", scheme)
    if any("@" in part.partition("=")[0] for part in query.split("&")):
        raise unescaped("?", scheme)
    if "@" in userinfo:
        raise unescaped("@", scheme)
    if _BAD_PERCENT.search(userinfo):
        raise unescaped("%", scheme)
    if found := next((each for each in userinfo if each.isspace() or each in "[]"), None):
        raise unescaped(found, scheme)
    if not all(map(_HOST.fullmatch, hosts.partition("?")[0].split(","))):
        raise ConfigError(
            f"the port of a {scheme}:// URL must be a number (not shown: it may be part of a "
            f"password); in a password write {_ESCAPES}"
        )


def unescaped(character: str, scheme: str) -> ConfigError:
    """Return the error for a character that must be escaped."""
    return ConfigError(
        f"the user and password of a {scheme}:// URL must be percent-encoded, got an unescaped "
        f"{character!r}; write {_ESCAPES}"
    )
