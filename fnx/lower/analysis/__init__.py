"""Facts about graphs and kernels that several passes share; canonical forms of loops."""
