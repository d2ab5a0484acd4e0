"""What the rows of real programs run. The scripts here know nothing of hakmem and run on the system's interpreters."""
