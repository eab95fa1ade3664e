"""parts: one file for each part of the day, named after it; `plan.ORDER` lists them."""
