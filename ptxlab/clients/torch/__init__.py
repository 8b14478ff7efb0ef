"""PyTorch as it is with a GPU, without one: tensors on "cuda" for PyTorch's own dispatcher, computed on the CPU."""
