"""What `windlass check` examines before a deploy: whether new code serves what a store holds."""
