"""What each instruction of the machine is in PTX, by family."""
