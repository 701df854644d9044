"""The demo: an app with handlers of several tempers, and a run of them that adds up."""

from windlass.demo.jobs import app

__all__ = ["app"]
