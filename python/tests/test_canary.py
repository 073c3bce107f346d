"""The comparison of managed with observed nodes: Student's quantiles from tables, a hand-worked interval, and a Prometheus of one's own."""

import json
import math
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from waiting import PATIENCE_S, until

from waykeeper import canary

SINCE, UNTIL = 10_000.0, 20_000.0


@pytest.mark.parametrize(("freedom", "wanted"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, wanted: float) -> None:
    assert canary.student(0.975, freedom) == pytest.approx(wanted, abs=6e-4)


def asked(changes: dict[str, dict[str, tuple[float, float]]]):
    """Answers: for each mode the nodes with their number before and after, the same for each measure."""

    def ask(query: str, at_s: float) -> dict[str, float]:
        for mode, nodes in changes.items():
            if f'mode="{mode}"' in query:
                return dict.fromkeys(nodes, 1.0)
        both = {node: pair for nodes in changes.values() for node, pair in nodes.items()}
        return {node: pair[int(at_s == UNTIL)] for node, pair in both.items()}

    return ask


def test_the_interval_is_the_one_that_is_worked_by_hand() -> None:
    # Logarithms of the changes: managed 0.1, 0.2, 0.3, observed -0.1, 0, 0.1. Each variance is 0.01, the error sqrt(2 x 0.01 / 3) =
    # 0.08165, the degrees of freedom 4: t = 2.7764, half an interval 0.22670. The difference is 0.2.
    managed = {f"m{index}": (2.0, 2.0 * math.exp(index / 10)) for index in (1, 2, 3)}
    observed = {f"o{index}": (4.0, 4.0 * math.exp(index / 10)) for index in (-1, 0, 1)}
    lines = canary.compare(asked({"manage": managed, "observe": observed}), SINCE, UNTIL)
    assert [line.measure for line in lines] == [measure.name for measure in canary.MEASURES]
    first = lines[0]
    assert (first.managed, first.observed, first.verdict) == (3, 3, "cannot tell")
    assert first.managed_change == pytest.approx(math.exp(0.2))
    assert first.observed_change == pytest.approx(1.0)
    assert (math.log(first.low), math.log(first.ratio), math.log(first.high)) == pytest.approx(
        (-0.0267, 0.2, 0.4267), abs=1e-4
    )


def test_what_is_better_depends_on_the_measure_and_what_all_nodes_share_counts_for_none() -> None:
    def nodes(name: str, factor: float) -> dict[str, tuple[float, float]]:
        return {f"{name}{index}": (1.0, factor * (1 + index / 1000)) for index in range(5)}

    lines = canary.compare(asked({"manage": nodes("m", 2.2), "observe": nodes("o", 2.0)}), SINCE, UNTIL)
    verdicts = {line.measure: line.verdict for line in lines}
    assert verdicts["HPW instructions per cycle"] == "better"
    assert verdicts["memory traffic"] == "worse"
    assert all(line.ratio == pytest.approx(1.1) for line in lines)
    alike = canary.compare(asked({"manage": nodes("m", 2.0), "observe": nodes("o", 2.0)}), SINCE, UNTIL)
    assert {line.verdict for line in alike} == {"cannot tell"}


def test_nodes_without_a_number_are_left_out_and_too_few_say_so() -> None:
    managed = {"m1": (1.0, 1.0), "m2": (0.0, 1.0), "m3": (1.0, 0.0)}
    observed = {"o1": (1.0, 1.0), "o2": (1.0, 1.0)}
    lines = canary.compare(asked({"manage": managed, "observe": observed}), SINCE, UNTIL)
    assert (lines[0].managed, lines[0].ratio, lines[0].verdict) == (1, None, "too few nodes have it")
    with pytest.raises(canary.CanaryError, match="1 nodes have the mode observe"):
        canary.compare(asked({"manage": managed, "observe": {"o1": (1.0, 1.0)}}), SINCE, UNTIL)
    with pytest.raises(canary.CanaryError, match="at least 1200 s are needed"):
        canary.compare(asked({}), SINCE, SINCE + 1000)


class Answers(BaseHTTPRequestHandler):
    """Prometheus' answers: two managed nodes that gain, two observed ones that do not; /broken has none."""

    def do_GET(self) -> None:
        words = parse_qs(urlparse(self.path).query)
        query, after = words["query"][0], float(words["time"][0]) > 1_700_005_000
        nodes = {"m1": 1.2, "m2": 1.21, "o1": 1.0, "o2": 1.01}
        if "waykeeper_mode" in query:
            nodes = {node: 1.0 for node in nodes if (node[0] == "m") == ('"manage"' in query)}
        elif not after:
            nodes = dict.fromkeys(nodes, 1.0)
        rows = [{"metric": {"instance": node}, "value": [0, str(value)]} for node, value in nodes.items()]
        body = b"<html>" if self.path.startswith("/broken") else json.dumps({"data": {"result": rows}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


TIMES = ["--since", "2023-11-14T22:13:20+00:00", "--until", "2023-11-15T00:13:20+00:00"]


def test_the_command_prints_a_table_with_the_verdict_last_or_json(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert canary.main(["--prometheus", address, *TIMES]) == 0
    head, first, *rest = capsys.readouterr().out.splitlines()
    assert (
        head.split()[-1] == "verdict" and first.startswith("HPW instructions per cycle") and first.endswith("  better")
    )
    assert rest[-1].startswith("less than a day")
    assert canary.main(["--prometheus", address, *TIMES, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["schema"] == "waykeeper.canary/1" and result["measures"][0]["verdict"] == "better"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--prometheus", "localhost:9090", *TIMES], 2, "--prometheus localhost:9090: write an address like"),
        (["--prometheus", "http://x", "--since", "yesterday"], 2, "--since yesterday: write a time with its zone"),
        (["--prometheus", "http://x", "--since", "2026-11-20T08:00:00"], 2, "write a time with its zone"),
        (["--prometheus", "http://127.0.0.1:1", *TIMES], 1, "http://127.0.0.1:1 cannot be asked"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert canary.main(words) == code
    assert said in capsys.readouterr().err


def test_another_server_is_no_prometheus(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert canary.main(["--prometheus", f"{address}/broken", *TIMES]) == 1
    assert "no answer of Prometheus: <html>" in capsys.readouterr().err


BEGIN, CHANGE, END = 1_767_225_600, 1_767_234_600, 1_767_243_600
"""1 January 2026, 0:00, 2:30 and 5:00: the change is in the middle."""

SCRAPED_S = 60


def exposition() -> str:
    """Three managed and three observed nodes, as the daemons' metrics were scraped every minute.

    HPWs of managed nodes have 10 % more instructions per cycle after the change, those of observed ones 2 % more. DCA write
    misses halve on managed nodes. Memory traffic grows alike on all.
    """
    series: dict[str, list[str]] = {
        "waykeeper_mode gauge": [], "waykeeper_tenant_info gauge": [], "waykeeper_tenant_instructions counter": [],
        "waykeeper_tenant_cycles counter": [], "waykeeper_io_llc_misses counter": [],
        "waykeeper_io_llc_references counter": [], "waykeeper_memory_bytes counter": [],
    }  # fmt: skip
    for node in range(6):
        is_managed = node < 3
        instance = f'instance="node-{node}",job="waykeeper"'
        tenant = f'{instance},tenant="db"'
        for at in range(BEGIN, END + 1, SCRAPED_S):
            before, after = min(at, CHANGE) - BEGIN, max(at - CHANGE, 0)
            # Nodes differ, and so do their gains: by 0.1 %.
            own, gain = 1 + node / 10, (1.1 if is_managed else 1.02) * (1 + node % 3 / 1000)
            misses = before + after * (0.5 if is_managed else 1.0) * (1 + node % 3 / 1000)
            rows = [
                (f'waykeeper_mode{{{instance},mode="{"manage" if is_managed else "observe"}"}}', 1.0),
                (f'waykeeper_tenant_info{{{tenant},priority="high"}}', 1.0),
                (f"waykeeper_tenant_instructions_total{{{tenant}}}", 1e9 * own * (before + gain * after)),
                (f"waykeeper_tenant_cycles_total{{{tenant}}}", 2e9 * (before + after)),
                (f'waykeeper_io_llc_misses_total{{{instance},op="write"}}', 1e6 * misses),
                (f'waykeeper_io_llc_references_total{{{instance},op="write"}}', 4e6 * (before + after)),
                (f"waykeeper_memory_bytes_total{{{instance}}}", 1e9 * (before + after * (1 + node % 3 / 1000))),
            ]
            for lines, (name, value) in zip(series.values(), rows, strict=True):
                lines.append(f"{name} {value} {at}")
    parts = [f"# TYPE {name}\n" + "\n".join(lines) for name, lines in series.items()]
    return "\n".join(parts) + "\n# EOF\n"


@pytest.fixture
def real_prometheus(tmp_path: Path):
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        pytest.skip("needs prometheus")
    (tmp_path / "metrics.txt").write_text(exposition())
    (tmp_path / "prometheus.yml").write_text("")
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", "metrics.txt", "data"]
    subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={place}"]
    # By default Prometheus deletes samples that are older than 15 days.
    words.append("--storage.tsdb.retention.time=100y")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:

            def is_ready():
                assert process.poll() is None, "Prometheus does not start"
                try:
                    urllib.request.urlopen(f"http://{place}/-/ready", timeout=PATIENCE_S).close()
                except OSError:
                    return False
                return True

            until("Prometheus", is_ready)
            yield f"http://{place}"
        finally:
            process.terminate()


def test_a_real_prometheus_gives_the_change_that_is_in_its_samples(real_prometheus: str) -> None:
    lines = canary.compare(canary.prometheus(real_prometheus), CHANGE, END)
    found = {line.measure: line for line in lines}
    hpw = found["HPW instructions per cycle"]
    assert (hpw.managed, hpw.observed, hpw.verdict) == (3, 3, "better")
    assert hpw.managed_change == pytest.approx(1.1 * 1.001, rel=1e-4)
    assert hpw.ratio == pytest.approx(1.1 / 1.02, rel=1e-4)
    # Logarithms of the gains differ by 0, 0.001, 0.002 on both sides: the error is 0.001 x sqrt(2 / 3), t of 4 is 2.7764.
    assert math.log(hpw.high / hpw.low) / 2 == pytest.approx(0.002267, rel=0.02)
    misses = found["DCA write misses"]
    assert misses.ratio == pytest.approx(0.5, rel=1e-4) and misses.verdict == "better"
    assert found["memory traffic"].verdict == "cannot tell"
    assert found["LPW instructions per cycle"].verdict == "too few nodes have it"


def test_every_metric_of_a_query_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/daemon-protocol.md").read_text()
    queries = [measure.query for measure in canary.MEASURES] + ["waykeeper_mode"]
    names = {name for query in queries for name in re.findall(r"waykeeper_\w+", query)}
    assert len(names) == 9 and not [name for name in sorted(names) if f"`{name}`" not in page]
