"""Recording what a program allocates, and replaying it: `hakmem trace`."""
