"""Owns how a URL is shown: without its passwords."""

from __future__ import annotations

import re

_MASK = "***"
_QUERY = re.compile(r"\?[\w.-]++=")
_USER = re.compile(r"://[^:@/]*+:")
_PARAMETER = re.compile(r"([?&])([^=&?]*+)=[^&]*+")
_HIDDEN = re.compile(r"password|passwd|pwd|secret|token", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Hide the passwords in a URL: `user:***@host`, and query parameters like `sslpassword`.

    A password with an unescaped `/`, `?` or `@` in it is hidden too, at worst with the host.
    """
    query = _QUERY.search(url)
    cut = query.start() if query and "@" in url[: query.start()] else len(url)
    address = url[:cut]
    at = address.rfind("@")
    if at >= 0 and (user := _USER.search(address, 0, at)) is not None:
        address = f"{address[: user.end()]}{_MASK}{address[at:]}"
    return _PARAMETER.sub(_shown_parameter, address + url[cut:])


def _shown_parameter(parameter: re.Match[str]) -> str:
    mark, name = parameter[1], parameter[2]
    return f"{mark}{name}={_MASK}" if _HIDDEN.search(name) else parameter[0]
