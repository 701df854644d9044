"""Owns the hot path of a worker: claims, settles and checkpoints, cut to the bounds of a script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Checkpoint, Job
from windlass.core.jobs.settle import Transition
from windlass.store.redis.connections.script import Argument, Command
from windlass.store.redis.scripting.calls import Names, Talk, by_id, values_of
from windlass.store.redis.scripting.rows import (
    encode,
    first_run,
    instant,
    is_plain_success,
    job_of,
    lane_bytes,
    read_rows,
    transition,
)
from windlass.store.redis.scripting.values import Item, check_written, item_of, writes

_CLAIMED_AT_ONCE = 120
_ASKS_AT_ONCE = 100
_BYTES_AT_ONCE = 131_072
_SETTLED_AT_ONCE = 160
_LARGE_BYTES_AT_ONCE = 1 << 20
_OTHER_WEIGHT = 2.5
"""Cost of a failure, or of another transition, in plain successes."""
_ACCEPTED = ord("1")


def claim(names: Names, asked: Claim, worker: str, token: int) -> Talk[list[Job]]:
    """Start pending jobs under a worker's lease."""
    budgets = dict(asked.budgets)
    asks = list(asked.asks)
    jobs: list[Job] = []
    while asks:
        piece = asks[:_ASKS_AT_ONCE]
        arguments = _claim_arguments(piece, budgets, worker, token)
        (reply,) = yield [names.call("claim", *arguments)]
        now, count, packed, lists, stop, rest, left, emptied = reply
        if count:
            rows = read_rows(count, packed)
            values, more, started = (yield from values_of(names, rows)), by_id(lists), instant(now)
            jobs += [
                first_run(row, values, worker, token, started)
                if row[8] is None
                else job_of(row, values, more.get(row[0]))
                for row in rows
            ]
        budgets = dict(zip(budgets, left, strict=True))
        if not stop:
            del asks[: len(piece)]
        else:
            first = piece[stop - 1]
            again = Ask(lane=first.lane, count=rest, draws=first.draws, ordered=first.ordered)
            asks[:stop] = [again]
        if emptied:
            empty = {piece[number - 1].lane for number in emptied}
            asks = [ask for ask in asks if ask.lane not in empty]
        if not all(budgets.values()):
            asks = [ask for ask in asks if all(budgets[name] for name in ask.draws)]
    return jobs


def _claim_arguments(
    asks: Sequence[Ask], budgets: dict[str, int], worker: str, token: int
) -> list[Argument]:
    bits = {name: 1 << at for at, name in enumerate(budgets)}
    arguments: list[Argument] = [worker, token, _CLAIMED_AT_ONCE, _BYTES_AT_ONCE, len(budgets)]
    arguments += budgets.values()
    for ask in asks:
        count = -ask.count if ask.ordered else ask.count
        draws = sum(bits[name] for name in ask.draws)
        arguments += (lane_bytes(ask.lane), count, draws)
    return arguments


def settle(names: Names, transitions: Sequence[Transition]) -> Talk[list[bool]]:
    """Move running jobs, each under its fence; return for each whether it was moved."""
    if all(move.result is None and is_plain_success(move) for move in transitions):
        return (yield from _complete(names, transitions))
    settled: list[bool] = []
    for piece in _pieces(transitions):
        items = [item_of(move.result) for move in piece]
        results, done, most = writes(names.namespace, items), 0, len(piece)
        while done < len(piece):
            part = slice(done, done + most)
            call = names.call("settle", *_settle_arguments(piece[part], items[part]))
            *_, reply = yield [*results, call]
            check_written(reply)
            settled += [answer == _ACCEPTED for answer in reply]
            results, done, most = [], done + len(reply), 2 * len(reply)
    return settled


def _complete(names: Names, successes: Sequence[Transition]) -> Talk[list[bool]]:
    """Complete jobs without a result, as most are: there is less to look at."""
    settled: list[bool] = []
    most = _SETTLED_AT_ONCE
    while len(settled) < len(successes):
        arguments: list[Argument] = []
        piece = successes[len(settled) : len(settled) + most]
        for token, claimed_together in groupby(piece, key=attrgetter("token")):
            ids = [move.id.bytes for move in claimed_together]
            arguments += ("p", token, len(ids), *ids)
        (reply,) = yield [names.call("settle", *arguments)]
        settled += [answer == _ACCEPTED for answer in reply]
        # Of many queues a script moves fewer, and should not read many more than it moves.
        most = min(_SETTLED_AT_ONCE, 2 * len(reply))
    return settled


def keep_results(names: Names, commands: Sequence[Command]) -> list[Command]:
    """Return the commands that write the large results of a settle, even if memory is full."""
    kept: list[Command] = []
    for command in commands[:-1]:
        _, key, value, _, seconds = command
        reference = bytes(key).removeprefix(names.namespace + b"v:")  # type: ignore[arg-type]
        kept.append(names.call("keep_value", reference, seconds, value))  # type: ignore[arg-type]
    return kept


def _pieces(transitions: Sequence[Transition]) -> Iterator[Sequence[Transition]]:
    start, weight, size, large = 0, 0.0, 0, 0
    for at, move in enumerate(transitions):
        if at > start and (
            weight >= _SETTLED_AT_ONCE or size >= _BYTES_AT_ONCE or large >= _LARGE_BYTES_AT_ONCE
        ):
            yield transitions[start:at]
            start, weight, size, large = at, 0.0, 0, 0
        weight += 1 if is_plain_success(move) else _OTHER_WEIGHT
        length = len(move.result or b"")
        large += length
        size += min(length, 512) + sum(map(len, move.steps))
        if move.error is not None:
            size += len(move.error.traceback)
    if start < len(transitions):
        yield transitions[start:]


def _settle_arguments(moves: Sequence[Transition], items: Sequence[Item]) -> list[Argument]:
    """Return the groups of a settle: successes under one token, and others one by one."""
    arguments: list[Argument] = []
    group: list[Argument] = []
    kind: tuple[str, int] | None = None

    def flush() -> None:
        if kind is not None:
            count = len(group) if kind[0] == "p" else len(group) // 2
            arguments.extend((kind[0], kind[1], count, *group))
            group.clear()

    for move, item in zip(moves, items, strict=True):
        if not is_plain_success(move):
            flush()
            kind = None
            arguments += ("o", move.id.bytes, move.token, encode(transition(move)), item.packed)
            continue
        its_kind = ("p" if move.result is None else "r", move.token)
        if its_kind != kind:
            flush()
            kind = its_kind
        group.append(move.id.bytes)
        if move.result is not None:
            group.append(item.packed)
    flush()
    return arguments


def checkpoint(names: Names, checkpoints: Sequence[Checkpoint]) -> Talk[list[bool]]:
    """Append to the step logs of running jobs, each under its fence."""
    added: list[bool] = []
    for start in range(0, len(checkpoints), 100):
        arguments: list[Argument] = []
        for point in checkpoints[start : start + 100]:
            saga = "" if point.saga is None else point.saga.value
            arguments += (point.id.bytes, point.token, saga, len(point.steps), *point.steps)
        (reply,) = yield [names.call("checkpoint", *arguments)]
        added += [answer == _ACCEPTED for answer in reply]
    return added
