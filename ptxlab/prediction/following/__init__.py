"""Machine code followed: which instructions each warp issues, and what they ask memory for."""
