"""The levels of the graph: legality rules, NumPy interpreter, printers."""
