"""Owns where requests come from: this host, another site, or a name that is not ours."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request

_HOST = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::\d*)?")
_PROXIED = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this host's own, whatever the port."""
    match = _HOST.fullmatch(host)
    name = "" if match is None else (match[1] or match[2]).rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def client_address(request: Request) -> str:
    """Return the address of the peer; one behind a proxy has the proxy's, since headers can lie."""
    return "" if request.client is None else request.client.host


def is_local(request: Request) -> bool:
    """Return whether a request was made on this host, to this host, and through no proxy.

    A web page elsewhere may let its own name resolve to this host, but its requests carry that
    name; and a proxy on this host passes on requests of others. Detection of a proxy is best
    effort: a proxy need not reveal itself.
    """
    client = request.client
    if client is None or not is_loopback(_bracketed(client.host)):
        return False
    if any(name in request.headers for name in _PROXIED):
        return False
    # By default nginx adds no header and replaces Host, but speaks HTTP/1.0; browsers never do.
    if request.scope.get("http_version") == "1.0":
        return False
    return is_loopback(request.headers.get("host", ""))


def is_own_origin(request: Request, others: Collection[str]) -> bool:
    """Return whether a form or a script of this page sent the request, by its `Origin`.

    Browsers send it with every POST. `others` are the origins under which a proxy serves the page.
    """
    origin = request.headers.get("origin", "")
    if not origin or origin == "null":
        return False
    if origin in others:
        return True
    try:
        netloc = urlsplit(origin).netloc
    except ValueError:
        return False
    return netloc.lower() == request.headers.get("host", "").lower()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
