"""Generated mixes: the same bytes for a seed, accepted by the reader, and served without loss."""

import hashlib
import json
from pathlib import Path

import waykeeper as wk
from waykeeper import mixes
from waykeeper.best_stretch import stretch

COUNT = 40


def test_a_seed_gives_the_same_bytes_and_another_seed_others():
    texts = [mixes.mix(1, index) for index in range(COUNT)]
    assert texts == [mixes.mix(1, index) for index in range(COUNT)]
    assert len(set(texts)) == COUNT and mixes.mix(2, 0) != texts[0]
    # The published tables name mixes by seed and index: a change of the generator needs new tables.
    assert hashlib.sha256("".join(texts).encode()).hexdigest()[:16] == "37850d1ee953fdd2"


def test_mixes_are_accepted_and_differ_in_kind(tmp_path):
    files = mixes.write(tmp_path, 1, COUNT)
    tables = [wk.Scenario.load(file).to_dict() for file in files]
    sizes = [len(table["workload"]) for table in tables]
    assert min(sizes) == 2 and max(sizes) == 12
    assert {table["chip"] for table in tables} == set(mixes.CHIPS)
    for table in tables:
        assert {workload["priority"] for workload in table["workload"]} == {"high", "low"}
        assert table.get("nic") or table.get("storage")
    assert any("phase" in nic for table in tables for nic in table.get("nic", []))
    assert any("start_s" in workload for table in tables for workload in table["workload"])
    # 30 are contended; about four in ten have another rule of the cache model.
    assert sum(mixes.is_contended(index) for index in range(COUNT)) == 30
    assert [", contended" in table["about"] for table in tables] == [mixes.is_contended(i) for i in range(COUNT)]
    assert 10 <= sum("model" in table for table in tables) <= 25


def test_programs_serve_the_packets_that_they_are_offered():
    # Those of most lines per packet, of trains, and of uneven queues; all 40 were measured once, in their first and last
    # state: no drops.
    for index in (5, 10, 23, 31, 39):
        part = stretch(wk.Scenario.parse(mixes.mix(1, index)), short=True)
        run = wk.run(part.scenario, ["default"], sets="1/64", duration_s=9, warmup_s=3, threads=1, progress=False)
        tables = part.scenario.to_dict()
        assert tables["nic"]
        for nic in tables["nic"]:
            offered = nic["offered_gbps"] * 1e9 / 8 / (nic["packet_bytes"] + 20)
            user = next(w["name"] for w in tables["workload"] if w.get("nic") == nic["name"])
            assert run.policy("default").workload(user).drops_per_s < 0.01 * offered, (index, user)


def test_the_layouts_that_ship_are_those_of_the_mixes():
    files = list((Path(__file__).parents[2] / "scenarios/bests").glob("mix-*.json"))
    assert len(files) == COUNT
    for file in files:
        _, seed, index = file.stem.split("-")
        known = json.loads(file.read_text(encoding="utf-8"))
        scenario = wk.Scenario.parse(mixes.mix(int(seed), int(index)))
        assert known["determined_by"] == scenario.source().best_fingerprint(), file.stem
        assert known["lpw_mean"] + 2 * known["lpw_standard_error"] >= known["lpw_floor"], file.stem


def test_a_mix_has_regret_wherever_its_file_is(tmp_path):
    (file, *_) = mixes.write(tmp_path, 1, 1)
    run = wk.run(file, ["default", "best"], sets="1/64", duration_s=6, warmup_s=4, threads=1, progress=False)
    assert run.policy("default").regret["hpw_regret_ratio"] > 0.1
