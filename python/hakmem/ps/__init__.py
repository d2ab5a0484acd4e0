"""`hakmem ps`: the processes that run on HAKMEM."""
