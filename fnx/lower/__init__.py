"""Layer 1: tensor graph -> kernels -> commands. One file per pass, with one entry function."""
