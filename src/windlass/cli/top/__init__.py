"""`windlass top`: a live view of a store in a terminal.

A `snapshot` of the figures becomes lines of text in `content`, without a terminal; `selection` and
`actions` are what keys change; `app` and `screens` show it all with Textual.
"""
