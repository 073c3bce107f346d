"""Tests of what the clients share."""
