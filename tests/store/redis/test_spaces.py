"""An app with spaces keeps the jobs of each in a whole store, and lets nothing cross one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_fixtures import documented_rights
from tests.support.redis_server import RedisServer
from tests.support.redis_spaces import SPACES, app_at, used
from windlass import ConfigError, Context, State, Unique, Windlass
from windlass.store.redis.connections.servers.urls import parse


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def keys(server: RedisServer) -> set[bytes]:
    return {key.partition(b":j:")[0] for key in server.call("KEYS", "*") if b":j:" in key}


def test_a_job_is_kept_in_the_space_of_its_queue(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            await kinds["plain"].aenqueue({"number": 1})
            assert keys(server) == {b"{windlass}"}
            await kinds["send"].aenqueue({"number": 1})
            assert keys(server) == {b"{windlass}", b"{windlass:mail}"}
            await asyncio.to_thread(kinds["send"].using(queue="import").enqueue, {"number": 1})
            await kinds["send"].using(queue="mail-slow").aenqueue({"number": 1})
            assert keys(server) == {b"{windlass}", b"{windlass:mail}", b"{windlass:bulk}"}
            queues = {count.queue for count in await app.store.counts()}
            assert queues == {"default", "mail", "mail-slow", "import"}

    asyncio.run(main())


def test_a_handler_of_one_space_enqueues_into_another_and_gets_the_result(
    server: RedisServer,
) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds, serving(app, space="mail"), serving(app, space="default"):
            handle = await kinds["plain"].aenqueue({"number": 7})
            assert await handle.aresult("30s") == 7
            workers = {worker.info.id for worker in await app.store.workers()}
            assert len(workers) == 2

    asyncio.run(main())


def test_the_stream_of_a_job_is_heard_whatever_its_space(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)

        @app.job(queue="mail")
        async def tell(ctx: Context) -> None:
            await ctx.stream("one")
            await ctx.stream("two")

        async with used(app), serving(app, space="mail"):
            handle = await tell.aenqueue()
            assert [chunk async for chunk in handle.astream()] == ["one", "two"]

    asyncio.run(main())


def test_jobs_of_several_spaces_are_not_enqueued_together(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            drafts = [kinds[kind].draft({"number": 1}) for kind in ("plain", "send")]
            across = r"must be in one space, got queue 'default' of space default and queue 'mail'"
            with pytest.raises(ConfigError, match=across):
                await app.aenqueue_many(drafts)
            with pytest.raises(ConfigError, match=across):
                await asyncio.to_thread(app.enqueue_many, drafts)
            with pytest.raises(ConfigError, match=across):
                await app.chain(*drafts).aenqueue()
            assert not keys(server)

    asyncio.run(main())


def test_a_flow_runs_in_its_space_and_is_seen_and_cancelled_from_outside(
    server: RedisServer,
) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            send = kinds["send"]
            async with serving(app, space="mail"):
                flow = await app.chain(*[send.draft({"number": n}) for n in (1, 2)]).aenqueue()
                await in_state(flow, State.COMPLETED)
            waiting = await app.chain(*[send.draft({"number": n}) for n in (1, 2)]).aenqueue()
            await app.control.acancel(waiting.id)
            assert await waiting.astate() is State.CANCELLED
            found = await app.jobs.afind(queue="mail", states=["cancelled"])
            assert {job.flow for job in found.jobs} == {waiting.id}
            assert len(found.jobs) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("unique", "queue", "why"),
    [
        (Unique("a", scope="global"), "mail", "got scope='global'; use scope='kind'"),
        (Unique("a"), "default", r"jobs of 'send' with a unique key must be in one space"),
        (Unique("a"), "mail", None),
        (Unique("a"), "mail-slow", None),
        (Unique("a", scope="queue"), "default", None),
    ],
)
def test_a_unique_key_that_would_cross_a_space_is_refused(
    server: RedisServer, unique: Unique, queue: str, why: str | None
) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            producer = kinds["send"].using(unique=unique, queue=queue)
            if why is None:
                first = await producer.aenqueue({"number": 1})
                assert (await producer.aenqueue({"number": 1})).id == first.id
            else:
                with pytest.raises(ConfigError, match=why):
                    await producer.aenqueue({"number": 1})

    asyncio.run(main())


def test_a_worker_serves_one_space_and_its_queues_only(server: RedisServer) -> None:
    app = app_at(server.url)
    with pytest.raises(ConfigError, match="one of default, mail, bulk for a worker, got none"):
        app.worker()
    with pytest.raises(ConfigError, match="got 'import' of space bulk; start another worker"):
        app.worker(space="mail", queues="mail,import")
    with pytest.raises(ConfigError, match="space must be one of default, mail, bulk, got 'post'"):
        _ = app_at(server.url, space="post").store
    with pytest.raises(ConfigError, match="spaces must be used with Redis"):
        _ = Windlass("memory://", spaces=SPACES).store


@pytest.mark.parametrize("wrong", ["mail", "default=mail", "a=b,a=c", "m l=mail", {"mail": []}, 7])
def test_spaces_without_a_name_or_queues_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"Windlass\(spaces=...\) must be comma-separated spaces"):
        Windlass("redis://localhost", spaces=wrong)


def test_a_limit_or_a_breaker_of_kinds_in_several_spaces_is_refused(server: RedisServer) -> None:
    app = Windlass(server.url, spaces=SPACES)
    app.limit("gpu", concurrency=2)

    @app.job(limit="gpu")
    async def plain() -> None: ...

    @app.job(limit="gpu", queue="mail")
    async def send() -> None: ...

    with pytest.raises(ConfigError, match="kinds with limit 'gpu' must be in one space"):
        app.worker(space="mail")


def test_pauses_and_schedules_belong_to_the_space_of_their_queue(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        mail = app_at(server.url, space="mail")
        async with used(app) as kinds, used(mail):
            assert await app.control.apause("mail")
            assert (await mail.control.apaused()).queues == {"mail"}
            with pytest.raises(ConfigError, match="no space has a record 'pause:kind:send'"):
                await app.control.apause(kind="send")
            assert await mail.control.apause(kind="send")
            assert await app.control.aresume(kind="send")
            await app.schedules.aput("post", kinds["send"].draft({"number": 1}), every="1h")
            assert [each.name for each in await mail.schedules.alist()] == ["post"]
            await app.schedules.apause("post")
            assert (await app.schedules.alist())[0].paused
            run = await app.schedules.arun("post")
            assert (await run.ainfo()).queue == "mail"
            assert await app.schedules.aremove("post")

    asyncio.run(main())


def test_a_declared_schedule_is_ticked_by_the_workers_of_its_space(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)

        @app.every("1h", queue="import")
        async def collect() -> None: ...

        async with used(app):

            async def known() -> list[str]:
                return [each.name for each in await app.schedules.alist()]

            async with serving(app, space="mail"):
                assert await known() == []
            async with serving(app, space="bulk"):
                await until(known)

    asyncio.run(main())


def test_an_event_reaches_jobs_of_every_space(server: RedisServer) -> None:
    async def main() -> None:
        app = Windlass(server.url, spaces=SPACES)

        @app.job
        async def wait(ctx: Context) -> str:
            return str(await ctx.wait_for("paid"))

        async with used(app), serving(app, space="mail"), serving(app, space="default"):
            handles = [await wait.using(queue=queue).aenqueue() for queue in ("mail", "default")]
            await app.asend_event("paid", "cash")
            assert [await each.aresult("30s") for each in handles] == ["cash", "cash"]

    asyncio.run(main())


@pytest.mark.long
def test_spaces_are_spread_over_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    async def main(cluster: RedisCluster) -> None:
        slots = {name: parse(cluster.url).of_space(name).slot for name in ("", "mail", "bulk")}
        owners = {name: cluster.owner(slot).port for name, slot in slots.items()}
        app = app_at(cluster.url)
        async with used(app) as kinds, serving(app, space="mail"), serving(app, space="default"):
            handles = [await kinds["plain"].aenqueue({"number": n}) for n in range(20)]
            assert [await each.aresult("60s") for each in handles] == list(range(20))
            findings = [each.name for each in await app.store.findings()]
            assert findings.count("shared_node") == 3 - len(set(owners.values()))
            # A space moves to another node under load, and nothing is lost.
            source = cluster.owner(slots["mail"])
            target = next(node for node in cluster.masters if node is not source)
            handles = [await kinds["plain"].aenqueue({"number": n}) for n in range(50)]
            await asyncio.to_thread(cluster.begin_move, slots["mail"], source, target)
            await asyncio.to_thread(cluster.move_keys, slots["mail"], source, target)
            await asyncio.to_thread(cluster.end_move, slots["mail"], source, target)
            assert [await each.aresult("60s") for each in handles] == list(range(50))

    with RedisCluster(tmp_path) as cluster:
        asyncio.run(main(cluster))


def test_the_documented_rights_with_those_for_spaces_are_enough(server: RedisServer) -> None:
    page = (Path(__file__).parents[3] / "docs/redis.md").read_text("utf-8")
    more = "~{windlass:*}:* &{windlass:*}:*"
    assert f"with spaces, `{more}`" in page
    server.call(*documented_rights("windlass", "windlass"), *more.split())

    async def main() -> None:
        app = app_at(server.url.replace("redis://", "redis://windlass:password@"))
        async with used(app) as kinds, serving(app, space="mail"), serving(app, space="default"):
            assert await (await kinds["plain"].aenqueue({"number": 7})).aresult("30s") == 7

    asyncio.run(main())
    assert server.call("ACL", "LOG") == []


def test_each_space_has_the_entries_of_its_own_changes(server: RedisServer) -> None:
    async def main() -> None:
        app, mail = app_at(server.url), app_at(server.url, space="mail")
        async with used(app) as kinds, used(mail):
            ids = [(await kinds["send"].aenqueue({"number": n})).id for n in range(3)]
            ids += [(await kinds["plain"].aenqueue({"number": n})).id for n in range(2)]
            await app.control.apause("mail")
            assert len(await app.control.acancel_many(ids)) == 5
            assert await app.control.apurge_where(states=["cancelled"]) == 5
            found = (await app.control.aaudit()).entries
            acted = sorted((each.action, each.subject, each.count) for each in found)
            assert acted == [
                *(("cancel", "jobs", 2), ("cancel", "jobs", 3)),
                ("pause", "queue:mail", 0),
                *(("purge", "jobs", 2), ("purge", "jobs", 3)),
            ]
            page = await app.control.aaudit(limit=2)
            rest = await app.control.aaudit(after=page.after)
            assert (*page.entries, *rest.entries) == found
            assert len((await mail.control.aaudit()).entries) == 3

    asyncio.run(main())


def test_a_bulk_operation_is_carried_on_in_its_space(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds, serving(app, space="mail", queues="mail-none"):
            ids = [(await kinds["send"].aenqueue({"number": n})).id for n in range(5)]
            with pytest.raises(ConfigError, match="space must be one of"):
                await app.control.astart_bulk("cancel", kind="send")
            operation = await app.control.astart_bulk("cancel", queue="mail")

            async def is_done() -> bool:
                return (await app.control.abulk(operation.id)).state == "completed"

            await until(is_done)
            jobs = await app.store.get_many(ids)
            assert {job.state for job in jobs.values()} == {State.CANCELLED}
            assert (await app.control.abulk(operation.id)).moved == 5
            assert (await app.control.astop_bulk(operation.id)).state == "completed"

    asyncio.run(main())
