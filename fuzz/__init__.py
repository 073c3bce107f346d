"""Coverage-guided fuzzing of every reader: building, running and counting. The targets are Rust (`src/bin`)."""
