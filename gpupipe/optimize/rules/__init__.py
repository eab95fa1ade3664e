"""rules: rewrites of plans and graphs into cheaper ones of equal meaning."""
