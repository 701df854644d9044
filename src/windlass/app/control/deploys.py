"""Owns how deploys are marked and listed, so that errors which are new since one can be found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from windlass.app.control.part import ControlPart
from windlass.app.loop_thread import blocking
from windlass.core.changes import Changes
from windlass.core.deploys import RECORD, DeployMark, find_mark, read_marks, with_mark
from windlass.core.records import Json
from windlass.core.values.names import check_name


class DeployControl(ControlPart):
    """The methods of `app.control` for deploy marks."""

    async def amark_deploy(self, name: str) -> DeployMark:
        """Record that a release is deployed now, by the store's clock; the last 50 marks are kept.

        `name` is any text: a version, or a commit. One that is deployed again gets another mark.

        Raises:
            ValueError: the name is empty or too long.
        """
        called, by = check_name("deploy", name), self.actor.by

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[DeployMark]:
            mark = DeployMark(name=called, at=now, by=by)
            return Changes(answer=mark, records={RECORD: with_mark(known.get(RECORD), mark)})

        note = self._note("mark", f"deploy:{called}")
        return (await self._act(note, [RECORD], decide)).answer

    mark_deploy = blocking(amark_deploy)

    async def adeploys(self) -> list[DeployMark]:
        """Return the deploys that were marked, the newest first."""
        return read_marks((await self._app.store.records(RECORD)).get(RECORD))

    deploys = blocking(adeploys)

    async def adeploy(self, name: str) -> DeployMark:
        """Return the latest mark of this name.

        Raises:
            ConfigError: there is none.
        """
        return find_mark(await self.adeploys(), name)

    deploy = blocking(adeploy)
