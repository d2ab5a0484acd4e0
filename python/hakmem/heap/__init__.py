"""`hakmem heap`: heap profiles in pprof's format, symbolized, added up and drawn."""
