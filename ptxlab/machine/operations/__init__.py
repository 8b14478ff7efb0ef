"""What each instruction of the machine does, by family."""
