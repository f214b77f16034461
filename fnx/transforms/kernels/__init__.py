"""Hand-written kernels: Python over references becomes untiled kernel IR."""
