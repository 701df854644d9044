"""The web page: what is wrong first, why a job does not run, and the remedy as a button.

`app.web(access=...)` makes it an ASGI application, and `windlass web` serves it.
"""

from windlass.web.access.roles import Access, Role

__all__ = ["Access", "Role"]
