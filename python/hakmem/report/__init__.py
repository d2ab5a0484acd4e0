"""Shows what a run of the bench measured, as a page with charts and as pictures.

result.py reads a result file and says what is wrong with it. figures.py selects what is shown and puts it in words.
charts.py draws. page.py and pictures.py write the files.
"""
