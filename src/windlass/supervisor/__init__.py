"""The process above the workers: starts, watches, restarts. It never imports user code."""
