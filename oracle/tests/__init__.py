"""Tests of the oracle's own parts, without a guest: `python3 -m unittest discover -s oracle/tests -t oracle`."""
