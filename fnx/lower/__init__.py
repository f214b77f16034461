"""Layer 1: tensor graph -> kernels -> commands. One pass, one file, one entry function."""
