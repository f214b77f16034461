"""kernel level -> kernel level: fewer loops, shared kernels, canonical numbers."""
