"""Books, and tasks about them."""
