"""Tests of the fleet's own parts; they need no network and start no program."""
