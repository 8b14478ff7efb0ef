"""From a parsed module to a program of blocks of steps."""
