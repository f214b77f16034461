"""LLVM through llvmlite's library: text to machine code, kernels by digest."""
