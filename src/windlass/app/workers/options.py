"""Owns how the settings of an app become the options of a worker."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.errors import ConfigError
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.streams import StreamLimits
from windlass.core.payloads.redaction import Redaction
from windlass.settings import DEFAULT, Resolved
from windlass.supervisor.metrics_server import access_of
from windlass.version import __version__
from windlass.worker import WorkerOptions


def worker_options(resolved: Resolved, name: str, *, burst: bool, embedded: bool) -> WorkerOptions:
    """Return the options of a worker.

    A program that embeds a worker has its own way to wait for the store, and may have an endpoint
    for metrics: there, the worker serves them only if the setting was given.

    Raises:
        ConfigError: the settings leave no queue to serve.
    """
    settings = resolved.settings
    served = [each for each in settings.queues if each.queue not in settings.exclude]
    if settings.queues and not served:
        given = ",".join(map(str, settings.queues))
        raise ConfigError(
            f"no queue is left to serve: queues is {given} and exclude names all of them; exclude "
            "fewer"
        )
    has_endpoint = embedded and resolved.sources["metrics_port"].source != DEFAULT
    return WorkerOptions(
        name=name,
        release=__version__,
        queues=frozenset(each.queue for each in served) or None,
        excluded=frozenset() if served else frozenset(settings.exclude),
        queue_slots={each.queue: each.slots for each in served if each.slots is not None},
        burst=burst,
        concurrency=settings.concurrency,
        threads=settings.threads,
        isolated_processes=settings.isolated_processes,
        isolate=settings.isolate,
        claim_size=settings.claim_size,
        poll_interval=settings.poll_interval,
        lease=settings.lease,
        shutdown_timeout=settings.shutdown_timeout,
        retention=Retention(
            finished=settings.retention,
            dead=settings.dead_retention,
            streams=settings.stream_retention,
        ),
        audit_retention=settings.audit_retention,
        max_retries=settings.max_retries,
        max_crashes=settings.max_crashes,
        max_result=settings.max_result,
        stream_limits=StreamLimits(settings.max_stream_chunks, settings.max_stream),
        timeout=settings.timeout,
        redaction=Redaction(settings.redact),
        traces=settings.traces,
        wait_for_store=timedelta(0) if embedded else settings.wait_for_store,
        metrics=access_of(settings) if has_endpoint else None,
    )
