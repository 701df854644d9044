"""The pure core of Windlass: decides, without clock, randomness, I/O or logging.

Nothing in this package reads a clock, draws a random number, performs I/O or logs. Callers pass
`now` and `jitter`, and carry out the decisions.
"""
