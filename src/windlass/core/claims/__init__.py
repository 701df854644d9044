"""Decides which jobs to claim: the lanes that have work, and the plan of a claim."""
