"""Makes the inputs of the rows and, for each, the answers that its workload must find.

All inputs come from seeded generators, so that an input is the same on every machine. The answers are counted while an
input is written, independently of the measured programs.
"""
