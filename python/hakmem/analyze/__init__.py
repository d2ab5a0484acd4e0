"""`hakmem advise`: what HAKMEM saves in a process or would save, and which options to set."""
