"""What lets people see what Windlass does: its log lines."""
