"""The path of one job through a worker: claimed, run, settled, completed."""
