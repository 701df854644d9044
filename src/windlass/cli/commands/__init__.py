"""One module for each command of `windlass`."""
