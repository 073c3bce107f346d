"""Claims that cannot be simulated, each with the reason."""

from waykeeper.repro.claims import claims

_DRIVER = "an artefact of driver or firmware that the thesis does not explain; a model of it would be a copy"
_PARSEC = "the runtime of a PARSEC program, none of which is modelled; a stand-in would be calibrated on it"
_SILO = "the runtime of Silo, which is not modelled; the thesis itself calls the speed-up unexplained"

REASONS: dict[str, str] = {
    "MEMLOAD-F5.2-5": _DRIVER,
    "MEMLOAD-F5.3-1": "system calls are no part of the model: a command's host cost is one number, batched or not",
    "MEMLOAD-F5.4-1": "events of a server's background; the model has none, so that nothing would be shown",
}
REASONS |= {name: _PARSEC for name in claims() if name.startswith(("MEMLOAD-F5.8-", "MEMLOAD-F5.9-", "MEMLOAD-F5.10-"))}
REASONS |= {name: _SILO for name in claims() if name.startswith(("MEMLOAD-F5.12-", "MEMLOAD-F5.13-"))}
