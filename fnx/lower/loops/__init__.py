"""Fuse loops with a small body into one kernel: axes -> cells -> KERNEL with a LOOP."""
