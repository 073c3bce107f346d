"""A client of the gdb remote protocol: the part that is needed to answer calls of one function through QEMU's stub.

This module implements packets, registers and breakpoints of x86-64. It must not depend on CPUID, resctrl or what is booted.

Source: the GDB manual, appendix "GDB Remote Serial Protocol". QEMU 7.2 differs in two points. It ignores `P` (write one
register) unless the client has asked for the target's description before; so registers are written with `G`, which may be
shorter than the full set. With `s` the other processors run; so a step is `vCont;s:THREAD`.
"""

from __future__ import annotations

import re
import struct
import time

from guests import sockets

# The order of the general registers at the start of a `g` packet (QEMU: target/i386/gdbstub.c), 8 bytes each.
REGISTERS = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()


class GdbError(Exception):
    """The stub refused a packet, closed the connection or sent an invalid answer."""


class Gone(GdbError):
    """The stub closed the connection: QEMU ended."""


def packet(body: str) -> bytes:
    """`$BODY#CHECKSUM`; the checksum is the sum of the bytes modulo 256."""
    return f"${body}#{sum(body.encode()) % 256:02x}".encode()


class Gdb:
    """A connection to one stub. All addresses and values are unsigned integers."""

    def __init__(self, path: str, deadline: float) -> None:
        """Connects to the UNIX socket `path`, which may not exist yet; `deadline` is in time.monotonic()."""
        self.deadline = deadline
        self.buffer = b""
        try:
            self.socket = sockets.connect(path, deadline)
        except sockets.NotConnected as error:
            raise GdbError(str(error)) from None

    def close(self) -> None:
        self.socket.close()

    def ask(self, body: str) -> str:
        """Sends one packet and waits for its answer."""
        self._send(packet(body))
        return self.answer()

    def _send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            # Answers that the stub sent before it closed can still be read; after them `answer` raises `Gone`.
            pass

    def answer(self) -> str:
        """The next packet of the stub, acknowledged."""
        while True:
            found = re.search(rb"\$([^#]*)#([0-9a-f]{2})", self.buffer)
            if found:
                self.buffer = self.buffer[found.end() :]
                self._send(b"+")
                body = found.group(1)
                if sum(body) % 256 != int(found.group(2), 16):
                    raise GdbError(f"the checksum of packet {body!r} is wrong")
                return body.decode()
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise GdbError("no answer from the stub before the deadline")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                raise GdbError("no answer from the stub before the deadline") from None
            except ConnectionResetError:
                data = b""
            if not data:
                raise Gone("the stub closed the connection: QEMU ended")
            self.buffer += data

    def ok(self, body: str) -> None:
        """Sends a packet to which the only valid answer is OK."""
        answer = self.ask(body)
        if answer != "OK":
            raise GdbError(f"{body[:40]} answered {answer!r}, expected OK")

    def set_breakpoint(self, address: int) -> None:
        self.ok(f"Z0,{address:x},1")

    def resume(self) -> str | None:
        """Runs all processors until one stops; returns its thread number as the stub writes it, or None if the machine is off."""
        try:
            answer = self.ask("c")
        except Gone:
            return None
        return None if answer.startswith("W") else self._stopped(answer)

    def step(self, thread: str) -> None:
        """Executes one instruction of one processor while the others are stopped."""
        self._stopped(self.ask(f"vCont;s:{thread}"))

    def _stopped(self, answer: str) -> str:
        found = re.match(r"T05.*?thread:([^;]+);", answer)
        if not found:
            raise GdbError(f"expected a stop, got {answer!r}")
        return found.group(1)

    def registers(self) -> dict[str, int]:
        """The general registers of the processor that stopped."""
        answer = self.ask("g")
        if len(answer) < 16 * len(REGISTERS):
            raise GdbError(f"expected registers, got {answer[:40]!r}")
        values = struct.unpack(f"<{len(REGISTERS)}Q", bytes.fromhex(answer[: 16 * len(REGISTERS)]))
        return dict(zip(REGISTERS, values))

    def set_registers(self, values: dict[str, int]) -> None:
        """Writes all registers that `registers` returns."""
        self.ok("G" + struct.pack(f"<{len(REGISTERS)}Q", *(values[name] for name in REGISTERS)).hex())

    def read(self, address: int, size: int) -> bytes:
        answer = self.ask(f"m{address:x},{size:x}")
        if len(answer) != 2 * size:
            raise GdbError(f"expected {size} bytes at {address:#x}, got {answer[:40]!r}")
        return bytes.fromhex(answer)

    def write(self, address: int, data: bytes) -> None:
        self.ok(f"M{address:x},{len(data):x}:{data.hex()}")
