"""parts: one file for each part of the day, with its name; `plan.ORDER` lists them."""
