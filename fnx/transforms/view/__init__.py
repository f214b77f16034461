"""A local page on what jit made of a function: passes, graphs, kernels, memory, source."""
