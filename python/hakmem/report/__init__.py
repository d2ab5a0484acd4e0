"""Results as pages and pictures."""
