"""The user-facing Array: promotion, indexing, pytrees, and tracing functions to graphs."""
