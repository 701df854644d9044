"""Operations for operators' code: cancel, retry, pause, limits, breakers, and why."""
