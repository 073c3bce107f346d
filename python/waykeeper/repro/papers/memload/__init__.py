"""Figures of this paper, one per file."""
