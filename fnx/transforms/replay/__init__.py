"""What jit does at a call: signature, captures, launcher, and the steps of lowering to look at."""
