//! What each CPU generation calls its counters and knobs: one data table a generation, each value with its source.
//!
//! This room knows numbers that a manual prints. It must not know how they are read (files, perf, MSRs) nor who serves
//! them: the real host and the virtual one both look here, so neither can drift from the other.
