"""Who may see and do what: roles, the gate before every page, sessions, masking."""
