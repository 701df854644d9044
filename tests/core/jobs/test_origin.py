"""A job counts as fresh once: in the process that made it, and whatever the clocks say."""

from __future__ import annotations

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from windlass.app.enqueueing.id_generator import _JOBS_OF_AN_ORIGIN, IdGenerator
from windlass.core.jobs.ids import Origin, are_fresh
from windlass.core.jobs.job import NewJob

HERE = 7


def test_a_job_is_fresh_the_first_time_it_is_sent() -> None:
    origin = Origin(HERE)
    assert are_fresh([(1, origin), (2, origin)], HERE)
    assert not are_fresh([(2, origin)], HERE)
    assert not are_fresh([(3, origin), (1, origin)], HERE)
    assert not are_fresh([(3, origin)], HERE), "it was sent beside one that was not fresh"
    assert are_fresh([(4, origin)], HERE)
    assert are_fresh([], HERE)


def test_a_job_that_is_in_a_batch_twice_is_not_fresh() -> None:
    origin = Origin(HERE)
    assert not are_fresh([(1, origin), (1, origin)], HERE)


def test_a_job_of_another_process_is_not_fresh() -> None:
    assert not are_fresh([(1, Origin(HERE + 1))], HERE)
    assert not are_fresh([(1, None)], HERE)


def test_only_one_of_many_threads_is_the_first() -> None:
    origin = Origin(HERE)
    with ThreadPoolExecutor(8) as threads:
        for number in range(200):
            firsts = threads.map(lambda _, n=number: are_fresh([(n, origin)], HERE), range(8))
            assert sum(firsts) == 1


def test_a_job_that_went_elsewhere_has_no_origin() -> None:
    new = NewJob(id=UUID(int=1), kind="work", payload=b"{}", origin=Origin(HERE))
    assert pickle.loads(pickle.dumps(new)).origin is None
    assert copy.deepcopy(new).origin is None
    assert copy.copy(new).origin is new.origin


def test_an_origin_does_not_keep_the_ids_of_all_jobs_that_were_ever_made() -> None:
    ids = IdGenerator()
    first = ids.origin()
    assert first.process == os.getpid()
    origins = {id(ids.origin()): None for _ in range(_JOBS_OF_AN_ORIGIN)}
    assert len(origins) == 2
    assert ids.origin() is not first
