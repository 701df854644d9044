"""Arguments as data: encoding, checks, secrets and redaction."""
