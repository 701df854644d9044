"""Owns what is shown of libpq's words about a URL: nothing that is secret in it."""

from __future__ import annotations

import re

from windlass.core.payloads.redaction import MASK, Redaction

_QUOTED = re.compile(r'"([^"]*)"')
_PARAMETER = re.compile(r"[?&]([^=&?]*+)=([^&]*+)")


def masked_reason(reason: str, url: str) -> str:
    """Return libpq's error about a URL, without secrets."""
    redaction = Redaction()
    userinfo = url.partition("://")[2].rpartition("@")[0]
    hidden = [
        userinfo,
        *(value for name, value in _PARAMETER.findall(url) if redaction.hides(name)),
    ]

    def shown(quoted: re.Match[str]) -> str:
        is_secret = any(quoted[1] in each or each in quoted[1] for each in hidden if each)
        return f'"{MASK}"' if quoted[1] and is_secret else quoted[0]

    return redaction.text(_QUOTED.sub(shown, reason))
