"""What makes the inputs of the rows and, beside each, the answers that its workload has to come to.

Everything is drawn from seeded generators, so that an input is the same on every machine. The answers are found by
counting while an input is written, not by the programs that are measured.
"""
