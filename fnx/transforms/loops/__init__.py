"""Loops and branches: tracing their bodies, and FUNCTION -> FUNCTION of them."""
