"""Policies that hold jobs back: limits, breakers, fairness, pauses and service level objectives."""
