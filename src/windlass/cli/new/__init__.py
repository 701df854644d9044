"""Owns `windlass new`: names, templates, and how the files of a project are written."""
