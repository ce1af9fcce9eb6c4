"""The backends that run plans: NumPy, the generated CUDA kernels, cuBLAS."""
