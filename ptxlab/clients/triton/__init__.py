"""Triton's runtime on the emulator: its compiler and launch semantics stay, its CUDA driver is replaced."""
