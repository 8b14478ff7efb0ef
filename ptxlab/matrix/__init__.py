"""The matrix instructions: one table a family, and the layout of their operands."""
