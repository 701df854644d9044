"""How people write values: durations, sizes, ranges and names."""
