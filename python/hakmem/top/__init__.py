"""`hakmem top PID`: the heap of a running process on a terminal, looked at again and again.

sample.py takes one look; resident.py says what the resident memory is; tables.py makes tables of a look; words.py
writes figures and the head of the screen; app.py is the screen, plain.py the same as text.
"""
