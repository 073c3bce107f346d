"""Many runs in parallel, each in a process of its own or on a Dask cluster, with a progress bar.

Results have the order of the inputs. A run that fails gives a `Failure` and does not stop the others. This module must not
depend on what a run contains.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tqdm.auto import tqdm

from ._native import RunFailed
from .results import Curve, Run
from .running import AnyScenario, run, shows_progress
from .scenario import Scenario, as_scenario

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Work:
    """One run: a scenario, and the keyword arguments of `run`."""

    scenario: Scenario
    policies: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(scenario: AnyScenario, policies: Iterable[Any] = (), **options: Any) -> Work:
        """Creates one from the arguments of `run`."""
        return Work(as_scenario(scenario), tuple(policies), tuple(sorted(options.items())))


@dataclass(frozen=True)
class Failure:
    """A run that failed."""

    why: str
    """The reason, in one line."""
    details: str = field(repr=False, default="")
    """The traceback."""


def run_many(
    works: Sequence[Work], *, jobs: int | None = None, progress: bool | None = None
) -> list[Run | Curve | Failure]:
    """Runs all of `works`, `jobs` at a time (by default one per core), in other processes.

    Results have the order of `works`; a run that failed gives a `Failure`.
    """
    results: list[Any] = [None] * len(works)
    for index, result in each(_run, works, jobs=jobs, progress=progress, title="runs"):
        results[index] = result
    return results


def _run(work: Work) -> Run | Curve:
    return run(work.scenario, work.policies, threads=1, progress=False, **dict(work.options))


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    function: Callable[[In], Out],
    inputs: Sequence[In],
    *,
    jobs: int | None = None,
    progress: bool | None = None,
    title: str = "",
) -> Iterator[tuple[int, Out | Failure]]:
    """Calls `function` on every input in other processes; yields index and result as they finish.

    `function` must be importable. With one job it runs in this process.
    """
    jobs = min(jobs or cores(), max(len(inputs), 1))
    off = not shows_progress(progress)
    with tqdm(total=len(inputs), desc=title, disable=off) as bar:
        results = _here(function, inputs) if jobs == 1 else _in_processes(function, inputs, jobs)
        for pair in results:
            bar.update()
            yield pair


TRIES = 2
"""How often an input is run on a cluster before it counts as failed: its worker may be lost."""


def each_on_cluster(
    function: Callable[[In], Out],
    inputs: Sequence[In],
    client: Any,
    *,
    progress: bool | None = None,
    title: str = "",
) -> Iterator[tuple[int, Out | Failure]]:
    """The same on the workers of a Dask cluster: `client` is a `distributed.Client` whose workers have this package.

    An input that fails is run once more. Dask itself gives the inputs of a lost worker to another one.
    """
    from distributed import as_completed

    off = not shows_progress(progress)
    futures = {client.submit(attempt, function, value, pure=False): (i, 1) for i, value in enumerate(inputs)}
    queue = as_completed(list(futures))
    with tqdm(total=len(inputs), desc=title, disable=off) as bar:
        for future in queue:
            index, tries = futures.pop(future)
            result = attempt(type(future).result, future)
            if isinstance(result, Failure) and tries < TRIES:
                again = client.submit(attempt, function, inputs[index], pure=False)
                futures[again] = (index, tries + 1)
                queue.add(again)
                continue
            bar.update()
            yield index, result


def _here(function: Callable[[In], Out], inputs: Sequence[In]) -> Iterator[tuple[int, Out | Failure]]:
    for index, value in enumerate(inputs):
        yield index, attempt(function, value)


def _in_processes(
    function: Callable[[In], Out], inputs: Sequence[In], jobs: int
) -> Iterator[tuple[int, Out | Failure]]:
    # Fresh interpreters: a fork would copy threads' locks of whatever the caller has started.
    context = multiprocessing.get_context("spawn")
    # Ctrl-C is for this process, which ends the others.
    pool = ProcessPoolExecutor(jobs, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        waiting: dict[Future[Any], int] = {}
        queue = iter(enumerate(inputs))
        # A few ahead of the workers, so that stopping in the middle leaves little behind.
        for index, value in queue:
            waiting[pool.submit(attempt, function, value)] = index
            if len(waiting) < 2 * jobs:
                continue
            yield from _finished(waiting)
        while waiting:
            yield from _finished(waiting)
    except BaseException:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(waiting: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        index = waiting.pop(future)
        try:
            yield index, future.result()
        except BrokenProcessPool as why:
            hint = (
                'in a script, put the call under `if __name__ == "__main__":`, because each process imports the script'
            )
            raise RunFailed(f"a process ended without a result: {hint}") from why
        except Exception as why:  # the worker itself died, or the result cannot be pickled
            yield index, Failure(f"{type(why).__name__}: {why}", "")


def attempt(function: Callable[[In], Out], value: In) -> Out | Failure:
    """The function's result, or a `Failure`."""
    try:
        return function(value)
    except Exception as why:
        return Failure(f"{type(why).__name__}: {why}", traceback.format_exc())
