"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {}
