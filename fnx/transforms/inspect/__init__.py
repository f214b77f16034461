"""What ``jit(f).lower(...)`` shows: the steps of lowering, roofline, timeline.

lowering.py recomputes the steps on demand, as text or by lowering_html.py for notebooks;
schedule_reasons.py says why a kernel has its loops.
roofline.py compares the time of each kernel with the limits of the machine. timeline.py profiles
one call on the arguments that ``lower`` was given, or, if it was given types, on numbers that skip
no work (zeros would be masks that end loops). drawings.py draws a small graph (graph_layout.py
places its nodes), kernels over time, and memory over commands.
"""
