"""`hakmem serve PID...`: the heaps of running processes as a web page with live charts, as JSON, and for Prometheus.

watch.py looks at the processes, metrics.py writes Prometheus text, web.py answers requests, page.py makes the page.
"""
