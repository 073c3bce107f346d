//! Who evicts whose lines from the LLC, estimated from counters alone.
