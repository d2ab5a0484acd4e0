"""How far a profile's estimate may lie from the truth.

Each block is a sample with the chance 1 - exp(-size / rate), independently of others, and a sample stands for its
block divided by that chance. So an estimate is a sum of independent terms, and Bernstein's inequality bounds its
deviation."""

import math

# The chance that a correct profile fails one comparison.
FAILURE = 1e-12


def bound(sigma, one):
    """The deviation that a sum exceeds with a chance below FAILURE. sigma: its standard deviation. one: the most that
    one sample adds."""
    log = math.log(2 / FAILURE)
    return one * log / 3 + math.sqrt((one * log / 3) ** 2 + 2 * log * sigma**2)


def weight(size, rate):
    """The blocks that one sample of the size stands for."""
    return -1 / math.expm1(-size / rate)
