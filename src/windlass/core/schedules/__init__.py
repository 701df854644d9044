"""When scheduled jobs are due."""
