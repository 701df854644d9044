"""Services of a worker besides running jobs: rescue, schedules, flows, events, retention."""
