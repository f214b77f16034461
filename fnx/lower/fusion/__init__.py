"""Tensor level -> kernel level: which nodes share a kernel, and the kernels over loops."""
