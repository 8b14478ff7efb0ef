"""What each instruction of the machine does, by family.

NVIDIA lists the opcodes (CUDA Binary Utilities, "Instruction Set Reference"). How operands stand, what is waited for and
which pipe is held is read off what ptxas makes of each form of PTX's.
"""
