"""Runs one QEMU guest to its end: boots it, answers CPUID for it while its kernel detects resctrl, collects what it wrote.

It knows QEMU, the two serial ports and the breakpoint. It must not know what the guest's programs mean.

The guest's kernel is Debian's, unmodified. Its function `native_cpuid(unsigned *eax, *ebx, *ecx, *edx)` (pointers in rdi,
rsi, rdx, rcx; the leaf is in *eax, the subleaf in *ecx: arch/x86/include/asm/processor.h) is stopped at its first
instruction and answered from outside. The stub stays attached until the guest is off, so that the device files
/dev/cpu/N/cpuid, which end in the same function, say what the kernel was told.
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
"""More instructions than `native_cpuid` has, by far."""


@dataclass(frozen=True)
class Run:
    """What a guest left."""

    output: str
    """All that it wrote to its second serial port."""
    answered: int
    """CPUID questions that were answered for it."""
    passed_on: int
    """CPUID questions that its own processor answered."""
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
    """Boots `kernel` with `initrd` until the guest powers off. Without the address of `native_cpuid` nothing is
    answered for it.

    The kernel's messages go to LOGS/NAME.console, the guest's output to LOGS/NAME.output, QEMU's to LOGS/NAME.qemu.
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
            # One thread for all processors: with several a stop at a breakpoint can be lost.
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
                raise GuestError(f"{name}: not at its end after {timeout:.0f} s; see {console} and {output}") from None
    if status != 0:
        raise GuestError(f"{name}: QEMU ended with status {status}; see {logs / name}.qemu")
    text, messages = (path.read_bytes().decode(errors="replace") for path in (output, console))
    return Run(text, answered, passed_on, messages, time.monotonic() - began)


def _answer_to_the_end(gdb: Gdb, processor: Processor, native_cpuid: int) -> tuple[int, int]:
    """Answers every call of `native_cpuid` until the machine is off; gives how many were answered, how many passed on."""
    counts = [0, 0]
    gdb.set_breakpoint(native_cpuid)
    while thread := gdb.resume():
        registers = gdb.registers()
        if registers["rip"] != native_cpuid:
            raise GdbError(f"stopped at {registers['rip']:#x}, where no breakpoint is")
        counts[0 if _answer(gdb, processor, thread, registers) else 1] += 1
    return counts[0], counts[1]


def _answer(gdb: Gdb, processor: Processor, thread: str, registers: dict[str, int]) -> bool:
    """One call, stopped at its first instruction: true if it was answered, else its processor will answer."""
    pointers = [registers[name] for name in ("rdi", "rsi", "rdx", "rcx")]
    leaf, subleaf = (struct.unpack("<I", gdb.read(pointers[index], 4))[0] for index in (0, 2))
    if not processor.touches(leaf, subleaf):
        gdb.step(thread)
        return False
    (returns_to,) = struct.unpack("<Q", gdb.read(registers["rsp"], 8))
    if (leaf, subleaf) in processor.added:
        # Let it run, one instruction at a time since the others must stand still, and change what it found.
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
        # Return at once: the caller's frame is what it was before the call.
        gdb.set_registers({**registers, "rip": returns_to, "rsp": registers["rsp"] + 8})
    return True


def _store(gdb: Gdb, pointers: list[int], answer: Leaf) -> None:
    for pointer, value in zip(pointers, answer):
        gdb.write(pointer, struct.pack("<I", value))
