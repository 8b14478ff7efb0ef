"""Time predicted for GPUs that are not here."""
