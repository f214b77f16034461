"""tensor level -> tensor level: optimizations of whole arrays."""
