"""Figures of this paper, one a file."""
