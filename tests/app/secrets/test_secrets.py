"""Secrets are encrypted in every store, come back to the handler, and no mistake loses them."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from windlass import Callbacks, ConfigError, Context, Handle, Job, Kind, Secret, State, Windlass
from windlass.app.secrets.key_rotation import Rotated, rotate_keys

HIDDEN = "4111-1111-hidden"
OLD = f"old:{b64encode(bytes(32)).decode()}"
NEW = f"new:{b64encode(b'n' * 32).decode()}"
OTHER_OLD = f"old:{b64encode(b'x' * 32).decode()}"


@dataclass
class Card:
    number: Secret[str]


CHARGE = Kind("charge_card", Card)


def charging(app: Windlass, **options: Any) -> Any:
    async def charge(card: Secret[str], cards: list[Card] | None = None) -> Secret[str]:
        if cards is not None:
            raise RuntimeError(f"declined: {card.reveal()} {cards[0].number.reveal()!r}")
        return Secret(f"paid with {card.reveal()}")

    job: Any = app.job
    return job(max_retries=0, **options)(charge)


async def served(handle: Handle[Any], app: Windlass, *states: State) -> Job:
    async with serving(app):
        return await in_state(handle, *states)


def test_a_secret_reaches_its_handler_and_never_the_store(bed: Bed) -> None:
    app = bed.app(encryption_keys=OLD)
    charge = charging(app)

    async def main() -> None:
        handle = await charge.aenqueue(card=Secret(HIDDEN))
        job = await served(handle, app, State.COMPLETED)
        assert await handle.aresult() == Secret(f"paid with {HIDDEN}")
        assert job.payload.startswith(b'{"card":{"$secret":"old.')
        assert HIDDEN.encode() not in job.payload + (job.result or b"")

    asyncio.run(main())


def test_the_same_secret_is_never_sealed_in_the_same_way() -> None:
    charge = charging(Windlass("memory://", encryption_keys=OLD))
    payloads = {charge.draft(card=Secret(HIDDEN)).job.payload for _ in range(50)}
    assert len(payloads) == 50


@on_embedded_stores
def test_a_kind_without_its_handler_has_secrets_too(bed: Bed) -> None:
    app = bed.app(encryption_keys=OLD)
    seen: list[str] = []

    @app.job(CHARGE)
    async def charge(card: Card) -> None:
        seen.append(card.number.reveal())

    async def main() -> None:
        handle = await app.producer(CHARGE).aenqueue(Card(Secret(HIDDEN)))
        await served(handle, app, State.COMPLETED)

    asyncio.run(main())
    assert seen == [HIDDEN]


@on_embedded_stores
def test_a_job_of_an_old_name_is_opened_by_the_handler_of_the_new_one(bed: Bed) -> None:
    """Prevents a rename that makes all waiting secrets unreadable: they are bound to the kind."""
    before, app = bed.app(encryption_keys=OLD), bed.app(encryption_keys=OLD)
    app.store = before.store
    charge = charging(before)
    charging(app, name="charge_2", aliases=["charge"])

    async def main() -> None:
        handle = await charge.aenqueue(card=Secret(HIDDEN))
        await served(handle, app, State.COMPLETED)
        assert (await handle.aresult()).reveal() == f"paid with {HIDDEN}"

    asyncio.run(main())


@on_embedded_stores
def test_without_a_key_nothing_is_enqueued_and_nobody_serves(bed: Bed) -> None:
    app = bed.app()
    charge = charging(app)  # Importing a module needs no key.
    with pytest.raises(ConfigError, match=r"no encryption key .*windlass keys new"):
        charge.draft(card=Secret(HIDDEN))
    with pytest.raises(
        ConfigError, match=r"'charge' contains a Secret, .*WINDLASS_ENCRYPTION_KEYS"
    ):
        app.worker()


@on_embedded_stores
@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            NEW,
            r"key 'old', which is not configured here \(configured: new\); add it .* redrive",
        ),
        (f"{NEW},{OTHER_OLD}", r"cannot be decrypted with key 'old'"),
    ],
)
def test_a_job_whose_key_is_not_here_is_dead_and_lives_again_with_the_key(
    bed: Bed, keys: str, why: str
) -> None:
    first = bed.app(encryption_keys=OLD)
    handle = asyncio.run(charging(first).aenqueue(card=Secret(HIDDEN)))
    without, mended = bed.app(encryption_keys=keys), bed.app(encryption_keys=f"{NEW},{OLD}")
    without.store = mended.store = first.store
    charging(without)
    charging(mended)

    async def main() -> None:
        job = await served(handle, without, State.DEAD)
        assert job.reason is not None
        assert "field 'card'" in job.reason
        assert re.search(why, job.reason), job.reason
        assert job.attempt == 1
        await mended.control.aredrive([job.id])
        await served(handle, mended, State.COMPLETED)

    asyncio.run(main())


@on_embedded_stores
def test_a_secret_that_was_changed_is_not_believed(bed: Bed) -> None:
    app = bed.app(encryption_keys=OLD)
    charge = charging(app)
    payload = charge.draft(card=Secret(HIDDEN)).job.payload
    for spot in range(payload.index(b"old.") + 4, payload.index(b"=", 20), 7):
        changed = bytearray(payload)
        changed[spot] = ord("A") if changed[spot] != ord("A") else ord("B")
        with pytest.raises(Exception, match="cannot be decrypted with key 'old'"):
            app.registry["charge"].target.codec.decode(bytes(changed))


def test_the_traces_of_a_run_contain_no_secret(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    app = bed.app(encryption_keys=OLD, redact="color")
    charge = charging(app)
    caplog.set_level("DEBUG")

    @app.job
    async def talk(ctx: Context, card: Secret[str]) -> None:
        said = f"it is {card.reveal()}"
        ctx.log.info("talked", card=card, said=said, color="red", a="password=x")
        ctx.progress(0.5, f"half of {card.reveal()}")

    async def main() -> None:
        handle = await charge.aenqueue(card=Secret(HIDDEN), cards=[Card(Secret("in a list"))])
        other = await talk.aenqueue(card=Secret(HIDDEN))
        await served(other, app, State.COMPLETED)
        job = await served(handle, app, State.DEAD)
        assert job.error is not None
        assert job.error.message == "declined: *** '***'"
        assert HIDDEN not in job.error.traceback
        assert HIDDEN not in repr(await other.ainfo())

    asyncio.run(main())
    (line,) = log_lines(caplog, "talked")
    assert (str(line["card"]), line["said"], line["color"]) == ("Secret(***)", "it is ***", "***")
    assert line["a"] == "password=***"
    assert HIDDEN not in caplog.text


def test_keys_are_rotated_for_all_jobs_that_wait_or_are_dead(bed: Bed) -> None:
    first = bed.app(encryption_keys=OLD)
    app, last = bed.app(encryption_keys=f"{NEW},{OLD}"), bed.app(encryption_keys=NEW)
    app.store = last.store = first.store
    old, new = charging(first), charging(app)
    charging(last)

    async def main() -> None:
        dead = await old.aenqueue(card=Secret(HIDDEN), cards=[Card(Secret("other"))])
        await served(dead, first, State.DEAD)
        later = await old.using(delay="1h").aenqueue(card=Secret(HIDDEN))
        waiting = await old.aenqueue(card=Secret(HIDDEN))
        await new.aenqueue(card=Secret(HIDDEN))
        before = await waiting.ainfo()
        assert await rotate_keys(app, dry_run=True) == Rotated(looked_at=4, outdated=3)
        assert await waiting.ainfo() == before
        assert await rotate_keys(app) == Rotated(looked_at=4, outdated=3, rotated=3)
        assert await rotate_keys(app) == Rotated(looked_at=4)
        for handle in (dead, later, waiting):
            assert b"old." not in (await handle.ainfo()).payload
        assert (await dead.ainfo()).state is State.DEAD
        await served(waiting, last, State.COMPLETED)

    asyncio.run(main())


@on_embedded_stores
def test_a_rotation_counts_jobs_whose_steps_need_an_older_key(bed: Bed) -> None:
    """Prevents: the key is removed after the rotation, and these jobs are dead."""
    first, app = bed.app(encryption_keys=OLD), bed.app(encryption_keys=f"{NEW},{OLD}")
    app.store = first.store

    async def login() -> Secret[str]:
        return Secret(HIDDEN)

    @first.job
    async def sync(ctx: Context) -> None:
        await ctx.step("login", login)
        await ctx.sleep("1h")

    async def main() -> None:
        handle = await sync.aenqueue()
        await served(handle, first, State.SCHEDULED)
        assert await rotate_keys(app) == Rotated(looked_at=1, in_steps=1)

    asyncio.run(main())


@on_embedded_stores
def test_a_secret_whose_key_is_gone_is_left_alone_by_a_rotation(bed: Bed) -> None:
    first, app = bed.app(encryption_keys=OLD), bed.app(encryption_keys=NEW)
    app.store = first.store

    async def main() -> None:
        handle = await charging(first).aenqueue(card=Secret(HIDDEN))
        before = await handle.ainfo()
        assert await rotate_keys(app) == Rotated(looked_at=1, outdated=1, unreadable=1)
        assert await handle.ainfo() == before

    asyncio.run(main())


@pytest.mark.parametrize("in_thread", [False, True])
@on_embedded_stores
def test_secrets_of_a_batch_are_sealed_and_shown_with_none_of_its_jobs(
    bed: Bed, in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: a call for many jobs fails, and each keeps the secrets of all the others."""
    app = bed.app(encryption_keys=OLD)
    caplog.set_level("DEBUG")
    calls: list[list[str]] = []

    def charge_all(cards: list[Card]) -> None:
        numbers = [card.number.reveal() for card in cards]
        calls.append(numbers)
        logging.getLogger("shop").warning("charging %s", numbers)
        raise RuntimeError(f"declined: {numbers}")

    async def charge_in_loop(cards: list[Card]) -> None:
        charge_all(cards)

    job: Any = app.job
    handler = charge_all if in_thread else charge_in_loop
    charge = job(name="charge", batch_size=2, batch_timeout="5s", max_retries=0)(handler)

    async def main() -> None:
        hidden = (HIDDEN, "4222-also-hidden")
        handles = await app.aenqueue_many(charge.draft(Card(Secret(each))) for each in hidden)
        async with serving(app):
            jobs = [await in_state(handle, State.DEAD) for handle in handles]
        assert sorted(calls[0]) == sorted(hidden)
        for each in jobs:
            assert each.payload.startswith(b'{"number":{"$secret":"old.')
            assert each.error is not None
            assert each.error.message == "declined: ['***', '***']"
            assert "hidden" not in repr(each)

    asyncio.run(main())
    assert "hidden" not in "".join(str(line) for line in log_lines(caplog, "job.dead"))


@on_embedded_stores
def test_a_programs_own_logging_shows_no_secret_of_a_failed_callback(bed: Bed) -> None:
    """Prevents: an exception handed to a formatter that knows nothing of masks."""
    app = bed.app(encryption_keys=OLD)
    stream = io.StringIO()
    own = logging.StreamHandler(stream)
    own.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def fails(ctx: Context, *_: Any) -> None:
        raise RuntimeError(f"could not report {HIDDEN}")

    charge = charging(app, middleware=[Callbacks(completed=fails)])

    async def main() -> None:
        await served(await charge.aenqueue(card=Secret(HIDDEN)), app, State.COMPLETED)

    logger = logging.getLogger("windlass")
    logger.addHandler(own)
    try:
        asyncio.run(main())
    finally:
        logger.removeHandler(own)
    line = next(line for line in stream.getvalue().splitlines() if "callback.failed" in line)
    assert "could not report ***" in line
    assert "test_secrets.py" in line
    assert HIDDEN not in stream.getvalue()
