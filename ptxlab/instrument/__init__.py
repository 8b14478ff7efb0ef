"""Programs rewritten so that they tell what they do."""
