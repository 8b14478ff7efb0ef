"""Who runs next: waves of threads, their memory, barriers and copies."""
