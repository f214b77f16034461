"""Render a PROGRAM as source text: one module per language."""
