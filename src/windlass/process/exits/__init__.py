"""Why a process ended: its memory, its exit code, and the last lines that it logged."""
