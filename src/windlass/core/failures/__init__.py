"""The meaning of an exception: its class, its description and its fingerprint."""
