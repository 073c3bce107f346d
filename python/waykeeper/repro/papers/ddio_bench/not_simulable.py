"""Claims that cannot be simulated, each with the reason."""

PAUSE = "Ethernet flow control between two NICs; ours drop what finds no descriptor, as the paper's do in all other experiments"

REASONS: dict[str, str] = {
    "ATC20-S3.1-3": PAUSE,
    "ATC20-S3.1-4": PAUSE,
}
