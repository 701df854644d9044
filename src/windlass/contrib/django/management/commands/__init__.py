"""The commands of `manage.py`: `windlass`."""
