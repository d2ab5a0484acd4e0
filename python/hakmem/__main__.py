"""python -m hakmem: the same as the command hakmem."""

from hakmem.cli import main
from hakmem.version import NAME

main(prog_name=NAME)
