"""Machine code: decoded from what nvdisasm prints, what each instruction does, its control bits, registers and memory."""
