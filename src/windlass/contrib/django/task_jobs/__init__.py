"""Django's tasks as jobs: their options, handlers, results and signals."""
