"""Functions with rules of their own: CUSTOM nodes, and what users make them with."""
