"""The levels of the graph: what is legal, what it means in NumPy, how it prints."""
