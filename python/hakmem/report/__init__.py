"""What a run of the bench measured, as a page with charts and as pictures.

result.py reads a result file and says what is wrong with it; figures.py picks out and words what is shown;
charts.py draws; page.py and pictures.py write.
"""
