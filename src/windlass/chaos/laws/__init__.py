"""The checker: pure functions over what the ledger and the store say happened."""
