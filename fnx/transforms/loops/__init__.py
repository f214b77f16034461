"""Loops and branches: tracing of their bodies, and their FUNCTION -> FUNCTION passes."""
