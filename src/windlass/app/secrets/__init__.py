"""Encryption of secret arguments, and rotation of its keys."""
