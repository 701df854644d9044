"""The processes that `windlass worker` starts, and their signals."""
