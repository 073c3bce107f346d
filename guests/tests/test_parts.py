"""The parts that need no guest: the shell's port and QMP against far ends of our own, archives, ldd's texts."""

import json
import re
import socket
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from guests import initramfs, programs, rootfs, session
from guests.qmp import Counts, Qmp, QmpError
from guests.session import Session, SessionError


class Far:
    """A far end: calls `serve` with the first connection, in a thread of its own."""

    def __init__(self, test: unittest.TestCase, serve: Callable[[socket.socket], None]) -> None:
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/far"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()

        def run() -> None:
            connection, _ = self.listener.accept()
            with connection, self.listener:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        test.addCleanup(thread.join)


def soon() -> float:
    return time.monotonic() + 30


class Shell(unittest.TestCase):
    def answering(self, *answers: Callable[[str], bytes]) -> Session:
        """A session whose far end answers the lines in turn, by their mark, and hangs up after them."""

        def serve(connection: socket.socket) -> None:
            # A port gives bytes when it likes.
            for part in (b"noise of the boot\n@@re", b"ady\n"):
                connection.sendall(part)
            for answer in answers:
                line = b""
                while not line.endswith(b"\n"):
                    line += connection.recv(1)
                connection.sendall(answer(line.split()[0].decode()))

        client = Session(Far(self, serve).path, soon())
        self.addCleanup(client.close)
        return client

    def test_output_and_status_are_distinguished_by_the_commands_own_mark(self) -> None:
        client = self.answering(
            lambda mark: f"one\n\n@@0123 0\ntwo\n@@{mark} 3\n".encode(), lambda mark: f"\n@@{mark} 0\n".encode()
        )
        self.assertEqual(client.run("x"), session.Outcome("one\n\n@@0123 0\ntwo", 3))
        self.assertEqual(client.check("y"), "")

    def test_a_failed_command_is_an_error_where_it_must_not_fail(self) -> None:
        client = self.answering(lambda mark: f"no such thing\n@@{mark} 1\n".encode())
        with self.assertRaisesRegex(SessionError, "'ls x' ended with status 1: no such thing"):
            client.check("ls x")

    def test_a_guest_that_ends_is_an_error(self) -> None:
        client = self.answering(lambda mark: b"half")
        with self.assertRaisesRegex(SessionError, "no answer to 'ls': b'half'"):
            client.run("ls")

    def test_a_command_of_two_lines_is_refused(self) -> None:
        client = self.answering()
        with self.assertRaisesRegex(SessionError, "one line"):
            client.run("a\nb")


class Control(unittest.TestCase):
    def answering(self, *answers: list[dict]) -> Qmp:
        """A client whose far end sends these messages after each question in turn, the capabilities being granted."""

        def serve(connection: socket.socket) -> None:
            file = connection.makefile("rwb")
            with file:
                file.write(b'{"QMP": {}}\n')
                file.flush()
                for messages in ([{"return": {}}], *answers):
                    file.readline()
                    for message in messages:
                        file.write(json.dumps(message).encode() + b"\r\n")
                    file.flush()

        client = Qmp(Far(self, serve).path, soon())
        self.addCleanup(client.close)
        return client

    def test_events_between_question_and_answer_are_kept(self) -> None:
        stop, gone = ({"event": "STOP"}, {"event": "DEVICE_DELETED", "data": {"device": "a", "path": "/a"}})
        client = self.answering([stop, gone, {"return": 7}])
        self.assertEqual(client.execute("x"), 7)
        self.assertEqual(client.wait("DEVICE_DELETED", device="a"), gone)
        with self.assertRaisesRegex(QmpError, "QEMU closed"):
            client.wait("DEVICE_DELETED", device="a")

    def test_a_refusal_is_an_error(self) -> None:
        client = self.answering([{"error": {"class": "GenericError", "desc": "no such drive"}}])
        with self.assertRaisesRegex(QmpError, "eject: no such drive"):
            client.execute("eject", id="x")

    def test_counts_are_those_of_the_drive(self) -> None:
        def drive(name: str, base: int) -> dict:
            names = ("rd_operations", "rd_bytes", "wr_operations", "wr_bytes", "flush_operations")
            return {"device": name, "stats": {key: base + number for number, key in enumerate(names)}}

        client = self.answering([{"return": [drive("a", 0), drive("b", 10)]}], [{"return": [drive("b", 20)]}])
        before = client.counts("b")
        self.assertEqual(before, Counts(10, 11, 12, 13, 14))
        self.assertEqual(client.counts("b") - before, Counts(10, 10, 10, 10, 10))


class Archive(unittest.TestCase):
    def test_a_file_follows_its_header_and_both_are_padded_to_four(self) -> None:
        data = initramfs.archive([initramfs.file("ab", b"hello")])
        # 110 bytes of header and "ab\0" are 113, padded to 116; 5 bytes of content to 124.
        self.assertEqual(data[:6], b"070701")
        self.assertEqual(data[14:22], b"000081A4")  # S_IFREG | 0644
        self.assertEqual(data[54:62], b"00000005")
        self.assertEqual(data[94:102], b"00000003")
        self.assertEqual(data[110:124], b"ab\0\0\0\0hello\0\0\0")
        self.assertEqual(data[124 + 110 :], b"TRAILER!!!\0\0\0\0")

    def test_a_device_has_its_numbers(self) -> None:
        data = initramfs.archive([initramfs.character_device("c", 5, 1)])
        self.assertEqual(data[14:22], b"00002180")  # S_IFCHR | 0600
        self.assertEqual(data[78:94], b"0000000500000001")


LDD = (
    "\tlinux-vdso.so.1 (0x00007ffd3a9f2000)\n"
    "\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f3aa0e4a000)\n"
    "\t/lib64/ld-linux-x86-64.so.2 (0x00007f3aa0e7e000)\n"
)


class Carried(unittest.TestCase):
    def test_a_guest_gets_the_libraries_and_the_linker_but_not_what_the_kernel_brings(self) -> None:
        paths = ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"]
        self.assertEqual(programs.libraries(LDD), paths)

    def test_a_library_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesRegex(programs.BuildError, "libfoo.so.1"):
            programs.libraries("\tlibfoo.so.1 => not found\n")


class FileSystem(unittest.TestCase):
    def test_folders_come_before_what_is_in_them(self) -> None:
        image = rootfs.image(b"box", "#!/bin/sh\n", {"/usr/lib/a/b.so": b"lib", "usr/bin/x": b"x"})
        names = [name.decode() for name in re.findall(rb"0707010[^\0]{103}([^\0]+)\0", image)]
        for name in names:
            parent = str(Path(name).parent)
            self.assertTrue(parent == "." or parent in names[: names.index(name)], f"{name} in {names}")
        for name in ("usr/lib/a/b.so", "usr/bin/x", "bin/busybox", "init", "dev/console"):
            self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()
