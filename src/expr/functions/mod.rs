//! One file per family of functions; the registry.
