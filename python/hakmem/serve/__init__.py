"""`hakmem serve PID...`: running processes' heaps as a web page with live charts, as JSON, and for Prometheus.

watch.py looks at the processes; metrics.py writes Prometheus text; web.py answers; page.py makes the page.
"""
