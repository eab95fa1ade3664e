"""comparison: one training chain on every executor: what each costs, and how far their pixels differ."""
