"""What each instruction of the machine is in PTX, by family.

NVIDIA lists the opcodes (CUDA Binary Utilities, "Instruction Set Reference"). What they do is read off what ptxas makes of
each form of PTX's.
"""
