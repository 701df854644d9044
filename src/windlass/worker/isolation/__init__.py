"""Child processes in which isolated jobs run."""
