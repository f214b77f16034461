"""A local web page on a jitted function: passes, graphs, kernels, memory, source."""
