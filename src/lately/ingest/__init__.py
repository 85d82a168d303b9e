"""The path of an arrival before it is counted: its time, its order, lateness and ranges, and the counter that is one cell."""
