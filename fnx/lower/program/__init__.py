"""kernel level -> program level -> LLVM IR: explicit vectors, then text."""
