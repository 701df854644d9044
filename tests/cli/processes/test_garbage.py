"""Imports are not interrupted by collections, and whoever has turned them off keeps them off."""

from __future__ import annotations

import gc

import pytest

from windlass.cli.processes.garbage import without_collections


def test_a_block_collects_nothing_and_leaves_nothing_to_visit() -> None:
    with without_collections():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(10_000)]
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count() >= len(made)
        assert gc.get_count()[0] < gc.get_threshold()[0]
    finally:
        gc.unfreeze()


def test_objects_of_a_program_that_calls_a_command_can_still_be_collected() -> None:
    """Prevents that what a web process has at its first command is never visited again."""
    before = gc.get_freeze_count()
    with without_collections(keep=False):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == before


def test_an_import_that_fails_leaves_collections_on() -> None:
    with pytest.raises(ImportError), without_collections():
        raise ImportError
    gc.unfreeze()
    assert gc.isenabled()


def test_collections_that_were_off_stay_off() -> None:
    gc.disable()
    try:
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
