"""Schedules: choose one, check its legality, apply it to a kernel (loops, tiles, packing)."""
