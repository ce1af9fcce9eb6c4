"""Schedule to kernels, kernels to CUDA C, CUDA C to machine code."""
