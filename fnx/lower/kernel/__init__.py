"""Kernel level -> kernel level: fewer loops, shared kernels, canonical numbering."""
