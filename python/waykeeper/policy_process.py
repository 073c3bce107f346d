"""Runs a policy from a file in a process of its own. `waykeeper run --policy FILE` and the daemon start it with `python3 -c`, and
send this text before the first call.

One JSON array a line: `[number, {call: arguments}]` on standard input, `[number, {answer: value}]` on standard output. The
program that starts it sends the text of the file and of `own_policy.py`, so no installed package is needed: `waykeeper`, as
the policy imports it, has the names that a policy needs. If the package is installed, its other names are loaded from there
when they are first used. What the policy prints is on standard error. Must not know why it is run, or what a policy does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import linecache
import os
import queue
import signal
import sys
import threading
import traceback
import types
from typing import Any

OLDEST_PYTHON = (3, 10)
"""As in `pyproject.toml`."""
LONGEST_TEXT = 2000
"""Most characters of an exception's text that are passed on (assumption: a person reads no more)."""
MODULE = "waykeeper_policy_file"
"""The name under which the file is imported: none that the file itself may want to import."""
NAMES = ("Decision", "Event", "Interval", "Plan", "Policy", "Server", "Workload")
"""What `waykeeper` always has, as in its `__init__.py`."""

NICE = 10
"""Niceness of a confined policy: it gives way to tenants, and still has a share (assumption)."""
MEMORY_BYTES = 2 << 30
"""Most memory of a confined policy (assumption: room for numpy)."""
OPEN_FILES = 64
"""Most open files of a confined policy (assumption: modules are read one after another)."""
OOM_SCORE = 500
"""The kernel ends a policy before the program that asks it when memory runs out."""
MEMORY_PART = 2
"""A policy that is not confined may have this part of the memory (assumption: it trains on what it sees, on a machine with other
work)."""


class Refused(Exception):
    """The file cannot be used; the text says why."""


class Process:
    """The policy of one file, and the calls that reach it."""

    file: str
    policy_class: Any
    policy: Any
    called: str

    def answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer to one call. Raises what the policy raises."""
        self.called = call
        if call == "open":
            return {"opened": self.open(**arguments)}
        if call == "create":
            self.policy = self.policy_class.from_settings(arguments["settings"])
            return {"created": {}}
        if call == "start":
            return {"decision": self.policy._start(arguments["inventory"], arguments["workloads"])}
        if call == "step":
            if "classes" in arguments:
                self.policy.classes_changed(arguments["classes"])
            return {"decision": self.policy._step(arguments["workloads"], with_numbers(arguments["seen"]))}
        raise Refused(f"unknown call {call!r}")

    def open(
        self, file: str, text: str, policy_class: str | None, own_policy: str, folder: str | None, confined: bool
    ) -> dict[str, Any]:
        """Runs the file and finds its policy. Modules beside the file can be imported if `folder` is given."""
        self.file = file
        if sys.version_info < OLDEST_PYTHON:
            have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
            raise Refused(f"{sys.executable} is Python {have}; policies need {need} or later")
        base = provide(own_policy)
        if confined:
            confine()
        else:
            bound()
        # Not earlier: a file `resource.py` beside the policy would take the place of Python's own module.
        if folder is not None:
            sys.path.insert(0, folder)
        module = types.ModuleType(MODULE)
        module.__file__ = file
        sys.modules[MODULE] = module
        # The lines of the file for tracebacks: a confined process may be unable to read it.
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), module.__dict__)
        self.policy_class = self.find(module, base, policy_class)
        name = self.policy_class.name
        if not isinstance(name, str) or not name:
            raise Refused(f"{file}: {self.policy_class.__name__}.name is {name!r}; it must be a text")
        lines = (self.policy_class.__doc__ or "").strip().splitlines()
        beside = any(within(loaded, folder) for loaded in sys.modules.values()) if folder is not None else False
        return {"name": name, "idea": lines[0] if lines else "", "imports_beside": beside}

    def find(self, module: types.ModuleType, base: type, wanted: str | None) -> type:
        """The class of the policy: the only one of the file, or the wanted one."""
        found = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == MODULE
        }
        if wanted is not None and wanted in found:
            return found[wanted]
        if not found:
            raise Refused(
                f"{self.file} has no policy; it needs a class like `class Mine(waykeeper.Policy)` "
                "(`waykeeper policy new mine` writes one)"
            )
        names = ", ".join(found)
        if wanted is not None:
            raise Refused(f"{self.file} has no policy {wanted}; it has {names}")
        if len(found) > 1:
            raise Refused(
                f"{self.file} has {len(found)} policies ({names}); choose one, like {self.file}:{list(found)[0]}"
            )
        return next(iter(found.values()))

    def explain(self, why: BaseException) -> str:
        """An exception in one line: the last line of the file that was running, and the exception's own last line. What a
        method returned has the line where the method begins."""
        if isinstance(why, Refused):
            return str(why)
        if isinstance(why, SyntaxError) and why.filename == self.file:
            return f"{self.file}:{why.lineno}: {type(why).__name__}: {why.msg}"
        own = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if frame.filename == self.file]
        code = getattr(getattr(getattr(self, "policy", None), self.called, None), "__code__", None)
        if not own and code is not None and code.co_filename == self.file:
            own = [code.co_firstlineno]
        place = f"{self.file}:{own[-1]}" if own else self.file
        return f"{place}: {traceback.format_exception_only(type(why), why)[-1].strip()}"


def within(module: Any, folder: str) -> bool:
    """Whether a module was loaded from a folder, which need not be one of Python's own."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.startswith(os.path.join(folder, "")) and module.__name__ != MODULE


def provide(source: str) -> type:
    """Makes `import waykeeper` work, with or without the installed package. Returns the base class of policies."""
    spec = importlib.util.find_spec("waykeeper")
    package = types.ModuleType("waykeeper")
    package.__package__ = "waykeeper"
    package.__path__ = []
    if spec is not None and spec.submodule_search_locations is not None:
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        package.__file__ = spec.origin
    own_policy = types.ModuleType("waykeeper.own_policy")
    own_policy.__package__ = "waykeeper"
    sys.modules["waykeeper"] = package
    sys.modules["waykeeper.own_policy"] = own_policy
    exec(compile(source, "own_policy.py", "exec"), own_policy.__dict__)
    for name in NAMES:
        setattr(package, name, getattr(own_policy, name))

    def load_rest(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not package.__path__:
            raise ImportError(
                f"waykeeper.{name} needs the Python package `waykeeper`, which {sys.executable} does not have; a policy "
                f"itself needs only {', '.join(NAMES)}"
            )
        del package.__dict__["__getattr__"]
        spec.loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = load_rest  # type: ignore[attr-defined]
    return own_policy.Policy


def confine() -> None:
    """Gives up what a policy does not need: its share of busy CPUs, files to write, processes and threads, much memory."""
    import resource

    os.nice(NICE)
    limit(
        {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_NPROC: 0,
            resource.RLIMIT_NOFILE: OPEN_FILES,
            resource.RLIMIT_AS: MEMORY_BYTES,
        }
    )


def bound() -> None:
    """Leaves the machine some memory. Address space has no limit: libraries reserve far more than they use."""
    import resource

    limit({resource.RLIMIT_DATA: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_PART})


def limit(limits: dict[int, int]) -> None:
    """Sets limits that the process cannot raise, and makes it the first to end when memory runs out."""
    import resource

    # Not every kernel has the file.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    for what, most in limits.items():
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))


def with_numbers(seen: dict[str, Any]) -> dict[str, Any]:
    """An interval with numbers as the keys of workloads and ports: JSON has only text as keys."""
    seen["groups"] = {int(key): value for key, value in seen["groups"].items()}
    seen["ports"] = {int(key): value for key, value in seen["ports"].items()}
    for name in ("masks", "dca", "rx_ring", "rx_burst"):
        seen["knobs"][name] = {int(key): value for key, value in seen["knobs"][name].items()}
    return seen


def read(requests: Any, into: queue.SimpleQueue[bytes]) -> None:
    """Passes requests on. Their end is the end of the program that sent them, and ends this one, whatever the policy does."""
    for line in requests:
        into.put(line)
    os._exit(0)


def main() -> None:
    """Answers requests until there are no more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Ctrl-C is for the program that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=read, args=(requests, waiting), daemon=True).start()
    process = Process()
    while True:
        number, request = json.loads(waiting.get())
        ((call, arguments),) = request.items()
        try:
            # Here, so that an answer that JSON cannot hold is the policy's error.
            text = json.dumps(process.answer(call, arguments), allow_nan=False)
        except BaseException as why:
            said = process.explain(why)[:LONGEST_TEXT]
            text = json.dumps({"error": said.encode("utf-8", "backslashreplace").decode()})
        answers.write(f"[{number}, {text}]\n".encode())
        answers.flush()


if __name__ == "__main__":
    main()
