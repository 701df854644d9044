"""The actions of the page and of its API: each with a role, a confirmation and a command."""
