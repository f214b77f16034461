"""kernel level -> kernel level: fewer and shared loops, schedules, tiles, packing."""
