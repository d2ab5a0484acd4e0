//! Cargo wants a library here; the sources that this package depends on are what it is for.
