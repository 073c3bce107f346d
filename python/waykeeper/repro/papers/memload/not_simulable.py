"""Claims that cannot be simulated, each with the reason."""

from waykeeper.repro.claims import claims

_DRIVER = "an effect of driver or firmware that the thesis does not explain; a model could only copy the numbers"
_PARSEC = (
    "the runtime of a PARSEC program. PARSEC is not modelled, and a substitute would be calibrated with the very result"
)
_REDIS = (
    "neither the LLC nor memory delays Redis this much; the remaining cause is a part of the kernel that its sockets and the "
    "NVMe driver share, which is not modelled"
)
_SILO = "the runtime of Silo, which is not modelled; the thesis itself calls the speed-up unexplained"

REASONS: dict[str, str] = {
    "MEMLOAD-F5.2-5": _DRIVER,
    "MEMLOAD-F5.3-1": "system calls are not modelled: the host's cost of a command is one number, batched or not",
    "MEMLOAD-F5.4-1": "background events of a real server; the model has none, so the comparison would show nothing",
}
REASONS |= {name: _PARSEC for name in claims() if name.startswith(("MEMLOAD-F5.8-", "MEMLOAD-F5.9-", "MEMLOAD-F5.10-"))}
REASONS |= {f"MEMLOAD-F5.11-{n}": _REDIS for n in range(1, 5)}
REASONS |= {name: _SILO for name in claims() if name.startswith(("MEMLOAD-F5.12-", "MEMLOAD-F5.13-"))}
