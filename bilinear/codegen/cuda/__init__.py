"""CUDA: what kernels are built for, and the compiler that builds them."""
