"""Layer 0: what a graph is. Imports nothing else of fnx."""
