"""The packages of Waykeeper: what they contain, how they are built, and their tests in clean roots (README.md)."""
