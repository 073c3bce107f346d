"""The parts that need no guest: packets, CPUID answers, transcripts, markers, golden files."""

import socket
import struct
import tempfile
import threading
import time
import unittest
from pathlib import Path

from oracle import gdb, golden, guest, inside, processors, transcript


class Stub:
    """A stub of the far end: answers every packet by the table, in a thread."""

    def __init__(self, path: str, answers: dict[str, str]) -> None:
        self.asked: list[str] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, args=(answers,))
        self.thread.start()

    def _serve(self, answers: dict[str, str]) -> None:
        connection, _ = self.listener.accept()
        data = b""
        with connection, self.listener:
            while more := connection.recv(4096):
                data += more
                while b"#" in data and len(data) >= data.index(b"#") + 3:
                    body = data[data.index(b"$") + 1 : data.index(b"#")].decode()
                    data = data[data.index(b"#") + 3 :]
                    self.asked.append(body)
                    if body not in answers:
                        return
                    connection.sendall(b"+" + gdb.packet(answers[body]))


class Packets(unittest.TestCase):
    def test_checksum_is_the_sum_of_the_bytes(self) -> None:
        # 'O' 0x4f + 'K' 0x4b = 0x9a.
        self.assertEqual(gdb.packet("OK"), b"$OK#9a")

    def with_stub(self, answers: dict[str, str]) -> tuple[gdb.Gdb, Stub]:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        stub = Stub(f"{folder.name}/stub", answers)
        client = gdb.Gdb(f"{folder.name}/stub", time.monotonic() + 30)
        self.addCleanup(stub.thread.join)
        self.addCleanup(client.close)
        return client, stub

    def test_a_stop_names_its_thread_and_the_end_is_none(self) -> None:
        client, stub = self.with_stub({"c": "T05thread:03;"})
        self.assertEqual(client.resume(), "03")
        client, stub = self.with_stub({"c": "W00"})
        self.assertIsNone(client.resume())
        client, stub = self.with_stub({})
        self.assertIsNone(client.resume())

    def test_registers_go_there_and_back(self) -> None:
        values = dict(zip(gdb.REGISTERS, range(100, 117)))
        wire = struct.pack("<17Q", *range(100, 117)).hex()
        # A real `g` continues with flags and segments.
        client, stub = self.with_stub({"g": wire + "00" * 40, f"G{wire}": "OK"})
        self.assertEqual(client.registers(), values)
        client.set_registers(values)
        self.assertEqual(stub.asked, ["g", f"G{wire}"])

    def test_a_refusal_is_an_error_that_names_the_packet(self) -> None:
        client, _ = self.with_stub({"Z0,1234,1": "E22"})
        with self.assertRaisesRegex(gdb.GdbError, "Z0,1234,1 answered 'E22'"):
            client.set_breakpoint(0x1234)

    def test_silence_ends_at_the_deadline(self) -> None:
        ours, theirs = socket.socketpair()
        client = gdb.Gdb.__new__(gdb.Gdb)
        client.socket, client.buffer, client.deadline = ours, b"", time.monotonic() + 0.05
        with ours, theirs, self.assertRaisesRegex(gdb.GdbError, "deadline"):
            client.ask("g")


class Machine:
    """A processor in the middle of `native_cpuid`, as far as `guest._answer` looks: three steps and it is back."""

    OWN = (1, 2, 4, 8)
    POINTERS = (0x1000, 0x1004, 0x1008, 0x100C)
    BACK = 0xFFFFFFFF81000000

    def __init__(self, leaf: int, subleaf: int) -> None:
        self.memory = {0x1000: leaf, 0x1004: 77, 0x1008: subleaf, 0x100C: 77}
        self.state = dict.fromkeys(gdb.REGISTERS, 0) | dict(zip(("rdi", "rsi", "rdx", "rcx"), self.POINTERS))
        self.state |= {"rsp": 0x2000, "rip": 0x10}
        self.steps = 0

    def read(self, address: int, size: int) -> bytes:
        return struct.pack("<Q", self.BACK) if address == 0x2000 else struct.pack("<I", self.memory[address])

    def write(self, address: int, data: bytes) -> None:
        (self.memory[address],) = struct.unpack("<I", data)

    def step(self, thread: str) -> None:
        self.steps += 1
        if self.steps == 3:
            self.memory = dict(zip(self.POINTERS, self.OWN))
            self.state |= {"rsp": 0x2008, "rip": self.BACK}

    def registers(self) -> dict[str, int]:
        return dict(self.state)

    def set_registers(self, values: dict[str, int]) -> None:
        self.state = values

    def answer(self) -> tuple[int, ...]:
        return tuple(self.memory[pointer] for pointer in self.POINTERS)


class Cpuid(unittest.TestCase):
    def test_a_leaf_of_ours_is_answered_without_running_the_function(self) -> None:
        machine = Machine(0x10, 3)
        self.assertTrue(guest._answer(machine, processors.INTEL, "01", machine.registers()))
        self.assertEqual(machine.answer(), (89, 0, 4, 7))
        self.assertEqual((machine.state["rip"], machine.state["rsp"], machine.steps), (Machine.BACK, 0x2008, 0))

    def test_a_leaf_with_added_bits_runs_to_its_return_first(self) -> None:
        machine = Machine(7, 0)
        self.assertTrue(guest._answer(machine, processors.INTEL, "01", machine.registers()))
        self.assertEqual(machine.answer(), (1, 2 | 0x9000, 4, 8))
        self.assertEqual((machine.state["rip"], machine.steps), (Machine.BACK, 3))

    def test_any_other_leaf_is_left_to_the_processor(self) -> None:
        machine = Machine(0x10, 2)
        self.assertFalse(guest._answer(machine, processors.INTEL, "01", machine.registers()))
        self.assertEqual((machine.memory[0x1000], machine.steps), (0x10, 1))


RECORDED = """# tasks
> own mon_groups/m0
EINVAL
> r info/last_cmd_status
Can't move task to different control group
Error while processing task 174
> w g1/tasks 999999\\n
write ESRCH
  status: Error while processing task 999999
> r cpus_list

"""


class Transcripts(unittest.TestCase):
    def test_only_the_own_process_number_may_differ(self) -> None:
        recorded = transcript.parse(RECORDED)
        self.assertEqual([len(op.answer) for op in recorded], [1, 2, 2, 1])
        same = transcript.parse(RECORDED.replace("174", "67"))
        self.assertEqual(transcript.differences(recorded, same), (4, []))
        good, wrong = transcript.differences(recorded, transcript.parse(RECORDED.replace("999999", "99999")))
        self.assertEqual((good, len(wrong)), (3, 2))

    def test_another_answer_a_missing_and_a_foreign_operation_are_reported(self) -> None:
        recorded = transcript.parse(RECORDED)
        good, wrong = transcript.differences(recorded, transcript.parse(RECORDED.replace("ESRCH", "EPERM")))
        self.assertEqual(good, 3)
        self.assertIn("  recorded: write ESRCH", wrong[0])
        self.assertIn("  seen:     write EPERM", wrong[0])
        good, wrong = transcript.differences(recorded, [*recorded[:3], transcript.Operation("rm x", ("ok",))])
        self.assertEqual(good, 3)
        self.assertEqual(wrong, ["> r cpus_list\n  recorded, but not run", "> rm x\n  run, but not recorded"])


class Markers(unittest.TestCase):
    def test_what_a_step_wrote_comes_back_to_the_letter(self) -> None:
        text = "noise\n@@begin ops\n> r mode\nx\n\n@@end ops 0\n@@begin suite\n\n@@end suite 137\n@@begin doctor\nhalf"
        self.assertEqual(
            inside.outcomes(text),
            {"ops": inside.Outcome("> r mode\nx\n", 0), "suite": inside.Outcome("", 137)},
        )

    def test_a_quote_in_a_command_survives_the_shell(self) -> None:
        self.assertIn("sh -c 'echo '\\''a b'\\'''", inside.script([inside.Step("x", "echo 'a b'", mounted=None)]))


class Golden(unittest.TestCase):
    def test_a_newer_build_of_the_kernel_is_no_difference_but_the_exit_status_is(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "new/doctor.json"
            old, new = ('{"kernel": "6.1.0-56-cloud-amd64"}', '{"kernel": "6.1.0-61-cloud-amd64"}')
            self.assertIn("is missing", golden.differences(path, old, 0, bless=False))
            self.assertIsNone(golden.differences(path, old, 0, bless=True))
            self.assertIsNone(golden.differences(path, new, 0, bless=False))
            self.assertIn("+exit status 3", golden.differences(path, new, 3, bless=False))
            self.assertIn("+error: no knob", golden.differences(path, new + "\nerror: no knob\n", 0, bless=False))
            self.assertIn("no JSON", golden.differences(path, "panicked", 101, bless=False))


if __name__ == "__main__":
    unittest.main()
