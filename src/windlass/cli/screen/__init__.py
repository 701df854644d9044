"""The live picture of a store in a terminal, as `windlass top` shows it.

`terminal` and `keys` own the device, `paint` what is sent to it; `frame` draws a `view` of the
figures, with `panels` of `rows` on a `grid`; `details` and `levers` are what a row is asked for.
"""
