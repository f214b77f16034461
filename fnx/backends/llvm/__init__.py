"""LLVM through llvmlite's library: IR text to machine code, kernels by digest."""
