"""User-written kernels: trace Python code over references into untiled kernel IR."""
