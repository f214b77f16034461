"""The user's Array: promotion, indexing, pytrees, and how a function becomes a graph."""
