"""`hakmem look`: all views of running processes."""
