"""Patterns, rules and the walk that applies them; the algebra of index expressions."""
