"""The pure heart of Windlass: it decides, and does nothing.

Nothing in this package reads a clock, draws a random number, performs I/O or logs. Whoever calls it
passes `now` and `jitter`, and carries out what it answers.
"""
