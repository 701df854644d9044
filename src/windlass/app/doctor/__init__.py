"""What `windlass doctor` and the web page check, and their findings with remedies."""
