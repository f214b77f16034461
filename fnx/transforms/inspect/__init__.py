"""What ``jit(f).lower(...)`` shows: the steps of lowering, roofline, timeline."""
