"""Claims that cannot be simulated, each with the reason."""

PAUSE = (
    "needs Ethernet flow control between two NICs; our NICs drop packets for which no descriptor is free, as the "
    "paper's do in all other experiments"
)

REASONS: dict[str, str] = {
    "ATC20-S3.1-3": PAUSE,
    "ATC20-S3.1-4": PAUSE,
}
