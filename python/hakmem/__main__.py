"""python -m hakmem: the same as the command hakmem."""

from hakmem.cli import main

main()
