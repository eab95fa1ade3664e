"""rules: rewrites of plans and graphs. Each says the same as before, for less."""
