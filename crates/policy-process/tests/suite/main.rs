//! Tests of policies in real processes. They need a Python of 3.10 or later as `python3`.

mod answers;
