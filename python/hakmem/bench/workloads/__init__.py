"""The programs of the rows of real programs. They do not use hakmem and run on the system's interpreters."""
