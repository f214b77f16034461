"""What jit does at a call: signature, captures, launcher, and stages to look at."""
