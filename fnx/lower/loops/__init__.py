"""Loops whose body is small become one kernel: axes -> cells -> KERNEL with an ITER."""
