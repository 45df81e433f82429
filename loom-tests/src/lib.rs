//! Models of the index for loom.
