"""LLVM through llvmlite's library: IR text to machine code, kernels by digest.

kernel_cache.py compiles on helper threads while the next kernels are lowered, and links all that is
new at once. Linked code has linkers that go with the last of their libraries (binding.py), as LLVM
retains something of each. object_files.py refuses calls of functions outside a fixed list.
"""
