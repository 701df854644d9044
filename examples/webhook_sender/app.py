"""The handlers: one publishes an event to its subscribers, the others deliver it to one each."""

from __future__ import annotations

import hmac
import json
import os
import tempfile
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

from windlass import (
    Breaker,
    Context,
    ErrorClass,
    Handler,
    PermanentError,
    Retry,
    RetryAfter,
    SyncContext,
    Unique,
    Windlass,
)

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/webhooks.db"))
# A refused connection is not the delivery's fault: it waits, and keeps all its retries.
app.classify(ErrorClass.SYSTEM, ConnectionRefusedError)
_SECRET = os.environ.get("WEBHOOK_SECRET", "only for the show").encode()
_TOO_MANY, _BAD_REQUEST, _SERVER_ERROR = 429, 400, 500


class NotDelivered(Exception):
    """The subscriber answered with an error of its own."""


def subscriber(name: str) -> Handler[[str, str, str], int, [SyncContext, str, str, str], int]:
    """Register a kind for the deliveries to a subscriber, with a rate and a breaker of its own."""

    # So hasty for the show; a real subscriber gets minutes: initial="30s", cooldown="5m".
    @app.job(
        name=f"webhook.{name}",
        queue="webhooks",
        rate="20/s",
        concurrency=2,
        unique=Unique("delivery", until="24h"),
        retry=Retry(max_retries=5, initial="200ms", max_delay="2s"),
        breaker=Breaker(f"webhook.{name}", failures=3, cooldown="1s"),
        timeout="10s",
    )
    def deliver(ctx: SyncContext, url: str, event: str, delivery: str) -> int:
        """Post an event to the subscriber, under a key by which it recognises a repetition."""
        body = json.dumps({"event": event}).encode()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": ctx.idempotency_key,
            "X-Delivery": delivery,
            "X-Signature": hmac.new(_SECRET, body, "sha256").hexdigest(),
        }
        with closing(HTTPConnection(urlsplit(url).netloc, timeout=5)) as line:
            line.request("POST", urlsplit(url).path, body, headers)
            with line.getresponse() as answer:
                return _accepted(url, answer)

    return deliver


def _accepted(url: str, answer: HTTPResponse) -> int:
    """Return the status of an answer that takes the delivery; raise what any other one means."""
    problem = f"{url} answered {answer.status}"
    if answer.status == _TOO_MANY:
        raise RetryAfter(answer.headers.get("Retry-After", "1"), problem)
    if answer.status >= _SERVER_ERROR:
        raise NotDelivered(problem)
    if answer.status >= _BAD_REQUEST:
        raise PermanentError(problem)  # A retry would get the same answer: dead at once.
    return answer.status


SUBSCRIBERS = {name: subscriber(name) for name in ("billing", "crm")}


@app.job(name="webhook.publish")
async def publish(ctx: Context, event: str, urls: dict[str, str]) -> int:
    """Enqueue one delivery for each subscriber: all or none, and once, should this run again."""
    drafts = [
        SUBSCRIBERS[name].draft(url, event, f"{ctx.job_id}:{name}") for name, url in urls.items()
    ]
    await app.aenqueue_many(drafts)
    return len(drafts)
