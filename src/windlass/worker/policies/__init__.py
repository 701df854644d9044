"""Decides how much a worker may claim: limits, breakers, fairness, objectives and scaling."""
