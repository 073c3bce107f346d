"""Tests of what runs and counts the fuzzing targets."""
