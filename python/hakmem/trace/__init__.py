"""`hakmem trace`: records what a program allocates, and replays it."""
