"""Actions of commands on jobs: in bulk, and in an editor."""
