"""The payload of a job as a form: fields by its JSON schema, and back to JSON."""
