"""`windlass chaos`: faults thrown at real processes by a seed, and a checker of what happened."""
