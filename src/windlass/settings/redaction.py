"""Owns how a URL is shown: without its passwords."""

from __future__ import annotations

import re


def redact_url(url: str) -> str:
    """Hide the passwords in a URL: `user:***@host`, and query parameters like `sslpassword`.

    A password with an unescaped `/`, `?` or `@` in it is hidden too, at worst with the host.
    """
    query = _QUERY.search(url)
    cut = query.start() if query and "@" in url[: query.start()] else len(url)
    return _SECRET.sub(r"\1***", _USERINFO.sub(r"\1:***@", url[:cut]) + url[cut:])


_QUERY = re.compile(r"\?[\w.-]+=")
_USERINFO = re.compile(r"(?<=://)([^:@/]*):.*@", re.DOTALL)
_SECRET = re.compile(r"(\w*(?:password|passwd|pwd|secret|token)=)[^&]*", re.IGNORECASE)
