"""How much memory and disk there is: what the system tells, and what a worker tells of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from windlass.core.metrics.cluster_series import series_of
from windlass.core.metrics.families import FAMILIES
from windlass.core.stats.cluster_sample import Sample
from windlass.core.stats.depths import Disk
from windlass.process.exits import memory as usage
from windlass.store.memory import MemoryStore
from windlass.store.sqlite import SqliteStore


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the files of a system are that tells what it is told to."""
    for name in ("proc/self", "group/shop.slice/worker.service"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(usage, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(usage, "_CGROUP_MOUNT", tmp_path / "group")
    usage.memory_limit.cache_clear()
    (tmp_path / "proc/meminfo").write_text("MemTotal:   8000 kB\nMemFree:  1 kB\n")
    return tmp_path


def test_the_memory_there_is_is_the_hosts_unless_a_control_group_has_less(system: Path) -> None:
    assert usage.memory_limit() == 8000 * 1024
    usage.memory_limit.cache_clear()
    (system / "proc/self/cgroup").write_text("0::/shop.slice/worker.service\n")
    (system / "group/shop.slice/worker.service/memory.max").write_text("max\n")
    (system / "group/shop.slice/memory.max").write_text("4096000\n")
    assert usage.memory_limit() == 4096000, "the least of those above it"


def test_a_container_sees_its_own_limit_at_the_top(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/\n")
    (system / "group/memory.max").write_text("1048576\n")
    assert usage.memory_limit() == 1048576


def test_figures_that_the_system_does_not_provide_are_absent(system: Path) -> None:
    (system / "proc/meminfo").unlink()
    assert usage.memory_limit() is None


def test_disk_space_is_measured_for_a_file_and_absent_for_memory(tmp_path: Path) -> None:
    async def main() -> None:
        found = await SqliteStore(tmp_path / "jobs.db").disk()
        assert found is not None
        assert found.size == shutil.disk_usage(tmp_path).total
        assert 0 < found.free <= found.size
        assert await SqliteStore(tmp_path / "missing" / "jobs.db").disk() is None
        assert await MemoryStore().disk() is None

    asyncio.run(main())


def test_disk_and_pinned_breakers_are_shown_to_prometheus() -> None:
    sample = Sample(at=0.0, breakers={"bank": 0}, pinned=("bank",), disk=Disk(free=1, size=10))
    record = {
        "at": 0.0,
        "breakers": sample.breakers,
        "pinned": ["bank", "lab"],
        "disk": {"free": 1, "size": 10},
    }
    shown = series_of(record, age=1.0)
    assert shown["windlass_breaker_pinned"] == {("bank",): 1.0, ("lab",): 1.0}
    assert shown["windlass_store_disk_free_bytes"] == {(): 1}
    assert shown["windlass_store_disk_bytes"] == {(): 10}
    assert shown.keys() <= FAMILIES.keys()
    assert "windlass_store_disk_bytes" not in series_of({"at": 0.0}, age=1.0)
