"""tensor level -> tensor level: what can be said of whole arrays."""
