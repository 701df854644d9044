"""Owns `python -m windlass`, which is `windlass` where that is not on the path."""

from windlass.cli import main

main()
