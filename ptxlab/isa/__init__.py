"""What there is to program: PTX types, targets and GPUs, and which of them has an instruction."""
