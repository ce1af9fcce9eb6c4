"""What runs a plan: NumPy, the generated CUDA kernels, cuBLAS."""
