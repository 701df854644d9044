"""The handlers: one publishes an event to its subscribers, the other delivers it to one of them."""

from __future__ import annotations

import json
import os
import tempfile
from http.client import HTTPConnection
from urllib.parse import urlsplit

from windlass import Breaker, Context, ErrorClass, Retry, SyncContext, Unique, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/webhooks.db"))
# A refused connection is not the delivery's fault: it waits, and keeps all its retries.
app.classify(ErrorClass.SYSTEM, ConnectionRefusedError)
_SERVER_ERROR = 500


class NotDelivered(Exception):
    """The subscriber answered with an error."""


@app.job(name="webhook.publish")
async def publish(ctx: Context, event: str, subscribers: list[str]) -> int:
    """Enqueue one delivery for each subscriber: all or none, and once, should this run again."""
    drafts = [
        deliver.draft(urlsplit(url).netloc, url, event, f"{ctx.job_id}:{url}")
        for url in subscribers
    ]
    await app.aenqueue_many(drafts)
    return len(drafts)


# So hasty for the show; a real subscriber gets minutes: initial="30s", cooldown="5m".
@app.job(
    name="webhook.deliver",
    queue="webhooks",
    key="host",
    rate="20/s",
    concurrency=2,
    unique=Unique("delivery", until="24h"),
    retry=Retry(max_retries=5, initial="200ms", max_delay="2s"),
    breaker=Breaker("webhooks", failures=3, cooldown="1s"),
    timeout="10s",
)
def deliver(ctx: SyncContext, host: str, url: str, event: str, delivery: str) -> int:
    """Post an event to one subscriber, under a key by which it recognises a repetition."""
    line = HTTPConnection(host, timeout=5)
    headers = {"Idempotency-Key": ctx.idempotency_key, "X-Signature": "", "X-Delivery": delivery}
    try:
        line.request("POST", urlsplit(url).path, json.dumps({"event": event}), headers)
        status = line.getresponse().status
    finally:
        line.close()
    if status >= _SERVER_ERROR:
        raise NotDelivered(f"{url} answered {status}")
    return status
