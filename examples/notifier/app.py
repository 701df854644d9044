"""The handler: delivers an event to a partner who may be slow, unwell, or not there at all."""

from __future__ import annotations

import hmac
import json
import os
import tempfile
from http.client import HTTPConnection
from urllib.parse import urlsplit

from windlass import Breaker, ErrorClass, PermanentError, Retry, RetryAfter, SyncContext, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/notifier.db"))
KEY = os.environ.get("NOTIFIER_KEY", "what only we and the partner know").encode()
PATIENCE = 0.5
"""Seconds within which a partner has to answer."""
# A partner that is down is not the event's fault: it waits, and has all its retries left.
app.classify(ErrorClass.SYSTEM, ConnectionRefusedError)
_BAD_REQUEST, _BUSY, _SERVER_ERROR = 400, (429, 503), 500


class Unwell(Exception):
    """The partner has answered that it cannot: it may, later."""


# So hasty for the show; a real partner gets minutes: initial="30s", max_delay="1h", cooldown="5m".
@app.job(
    name="notifier.deliver",
    queue="webhooks",
    retry=Retry(max_retries=5, initial="200ms", max_delay="2s"),
    breaker=Breaker("partner", failures=4, cooldown="2s"),
    timeout="10s",
)
def deliver(ctx: SyncContext, url: str, event: str, data: dict[str, str]) -> int:
    """Post one event; its Idempotency-Key lets a receiver recognise a repetition."""
    body = json.dumps({"event": event, "data": data}, sort_keys=True).encode()
    status, wait = post(url, body, key=ctx.idempotency_key)
    if wait is not None and status in _BUSY:
        raise RetryAfter(wait)
    if status >= _SERVER_ERROR:
        raise Unwell(f"{url} answered {status}")
    if status >= _BAD_REQUEST:
        raise PermanentError(f"{url} does not want it: {status}")
    return status


def post(url: str, body: bytes, *, key: str) -> tuple[int, float | None]:
    """Return the answer's status, and for how many seconds it asks to be left alone."""
    place = urlsplit(url)
    line = HTTPConnection(place.hostname or "", place.port or 80, timeout=PATIENCE)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "X-Signature": hmac.new(KEY, body, "sha256").hexdigest(),
    }
    try:
        line.request("POST", place.path or "/", body, headers)
        answer = line.getresponse()
        wait = answer.getheader("Retry-After")
        return answer.status, None if wait is None else float(wait)
    finally:
        line.close()
