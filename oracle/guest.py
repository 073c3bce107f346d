"""Runs one QEMU guest: boots it, answers CPUID for it while its kernel detects resctrl, and collects its output.

This module controls QEMU, the two serial ports and the breakpoint. It must not depend on the guest's programs.

The guest runs an unmodified Debian kernel. A breakpoint stops its function `native_cpuid(unsigned *eax, *ebx, *ecx, *edx)` at the
first instruction (pointers in rdi, rsi, rdx, rcx; the leaf is in *eax, the subleaf in *ecx: arch/x86/include/asm/processor.h), and
this module writes the answer. The stub stays attached until the guest is off, so that the device files /dev/cpu/N/cpuid, which use
the same function, return the same values.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from guests import qemu
from guests.qemu import GuestError
from oracle.gdb import Gdb, GdbError
from oracle.processors import Leaf, Processor

MOST_STEPS = 200
"""Far more instructions than `native_cpuid` has."""


@dataclass(frozen=True)
class Run:
    """The results of a guest."""

    output: str
    """The output on its second serial port."""
    answered: int
    """Number of CPUID calls that this module answered."""
    passed_on: int
    """Number of CPUID calls that the emulated processor answered."""
    console: str
    """The kernel's messages."""
    seconds: float


def boot(
    name: str,
    kernel: Path,
    initrd: Path,
    processor: Processor,
    native_cpuid: int | None,
    logs: Path,
    timeout: float,
) -> Run:
    """Boots `kernel` with `initrd` and waits until the guest powers off. Without the address of `native_cpuid` no CPUID
    call is answered.

    Kernel messages are written to LOGS/NAME.console, the guest's output to LOGS/NAME.output, QEMU's to LOGS/NAME.qemu.
    """
    console, output = logs / f"{name}.console", logs / f"{name}.output"
    for path in (console, output):
        path.unlink(missing_ok=True)
    began = time.monotonic()
    deadline = began + timeout
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        stub = f"{folder}/gdb"
        hardware = qemu.Hardware(
            processor=processor.cpu,
            processors="4,sockets=2,cores=2",
            memory_mib=512,
            # One thread for all processors: with several threads a stop at a breakpoint can be lost.
            threads="single",
            more=() if native_cpuid is None else ("-S", "-gdb", f"unix:{stub},server=on,wait=off"),
        )
        append = "console=ttyS0 nokaslr panic=-1 loglevel=6"
        serials = [f"file:{console}", f"file:{output}"]
        with qemu.started(hardware, kernel, initrd, append, serials, logs / f"{name}.qemu") as child:
            try:
                answered = passed_on = 0
                if native_cpuid is not None:
                    gdb = Gdb(stub, deadline)
                    try:
                        answered, passed_on = _answer_to_the_end(gdb, processor, native_cpuid)
                    finally:
                        gdb.close()
                status = child.wait(max(1.0, deadline - time.monotonic()))
            except GdbError as error:
                raise GuestError(f"{name}: {error}; see {console} and {logs / name}.qemu") from None
            except subprocess.TimeoutExpired:
                raise GuestError(f"{name}: not finished after {timeout:.0f} s; see {console} and {output}") from None
    if status != 0:
        raise GuestError(f"{name}: QEMU ended with status {status}; see {logs / name}.qemu")
    text, messages = (path.read_bytes().decode(errors="replace") for path in (output, console))
    return Run(text, answered, passed_on, messages, time.monotonic() - began)


def _answer_to_the_end(gdb: Gdb, processor: Processor, native_cpuid: int) -> tuple[int, int]:
    """Answers every call of `native_cpuid` until the machine is off; returns the numbers of answered and of passed-on calls."""
    counts = [0, 0]
    gdb.set_breakpoint(native_cpuid)
    while thread := gdb.resume():
        registers = gdb.registers()
        if registers["rip"] != native_cpuid:
            raise GdbError(f"stopped at {registers['rip']:#x}, which is not a breakpoint")
        counts[0 if _answer(gdb, processor, thread, registers) else 1] += 1
    return counts[0], counts[1]


def _answer(gdb: Gdb, processor: Processor, thread: str, registers: dict[str, int]) -> bool:
    """Handles one call that is stopped at its first instruction; returns false if the emulated processor must answer it."""
    pointers = [registers[name] for name in ("rdi", "rsi", "rdx", "rcx")]
    leaf, subleaf = (struct.unpack("<I", gdb.read(pointers[index], 4))[0] for index in (0, 2))
    if not processor.touches(leaf, subleaf):
        gdb.step(thread)
        return False
    (returns_to,) = struct.unpack("<Q", gdb.read(registers["rsp"], 8))
    if (leaf, subleaf) in processor.added:
        # Run the function one instruction at a time (the other processors must stay stopped), then change its result.
        for _ in range(MOST_STEPS):
            gdb.step(thread)
            if gdb.registers()["rip"] == returns_to:
                break
        else:
            raise GdbError(
                f"native_cpuid({leaf:#x}) did not return to {returns_to:#x} within {MOST_STEPS} instructions"
            )
        own = tuple(struct.unpack("<I", gdb.read(pointer, 4))[0] for pointer in pointers)
        _store(gdb, pointers, processor.added[leaf, subleaf](own))
    else:
        _store(gdb, pointers, processor.replaced[leaf, subleaf])
        # Return at once: restore the caller's frame to its state before the call.
        gdb.set_registers({**registers, "rip": returns_to, "rsp": registers["rsp"] + 8})
    return True


def _store(gdb: Gdb, pointers: list[int], answer: Leaf) -> None:
    for pointer, value in zip(pointers, answer):
        gdb.write(pointer, struct.pack("<I", value))
