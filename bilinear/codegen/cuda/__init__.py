"""CUDA: the targets of kernels, and the compiler that builds them."""
