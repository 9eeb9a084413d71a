"""`make bench`: speed and memory of the operator, as ratios against a reference of the same run."""
