"""Schedules: choosing one, what is legal, and a kernel under it: loops, tiles, packing."""
