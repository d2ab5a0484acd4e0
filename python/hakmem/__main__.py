"""python -m hakmem: the same as the command hakmem."""

from hakmem.cli import NAME, main

main(prog_name=NAME)
