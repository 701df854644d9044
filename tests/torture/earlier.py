"""Owns the handlers as workers of an earlier release run them: TORTURE_RELEASE says of which."""

from __future__ import annotations

import os

from tests.store.postgres.releases import become
from tests.torture.handlers import app

__all__ = ["app"]

become(int(os.environ["TORTURE_RELEASE"]))
