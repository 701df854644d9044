"""An engine around that of PostgreSQL, as django-prometheus and django-tenants have one."""
