"""`hakmem top PID`: shows the heap of a running process on a terminal and keeps it up to date.

live/sample.py takes one look, and live/resident.py tells what the resident memory is. live/tables.py makes tables of a
look. head.py writes the head of the screen. app.py is the screen, plain.py the same screen as text.
"""
