"""Float32 products that cuBLAS multiplies with fewer bits: TF32, for which the unit drops bits itself, or bfloat16, rounded by a kernel."""
