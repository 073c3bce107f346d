"""Many runs at once: order kept, failures apart."""

import waykeeper as wk
from waykeeper.parallel import each


def test_results_come_in_order_and_a_failure_does_not_take_the_others_with_it(tiny):
    works = [
        wk.Work.of(tiny, ["default"], seed=1),
        wk.Work.of(tiny, ["no-such-policy"]),
        wk.Work.of(tiny, ["default"], seed=2),
    ]
    first, failed, last = wk.run_many(works, jobs=2, progress=False)
    assert isinstance(failed, wk.Failure) and "no-such-policy" in failed.why
    assert first == wk.run(tiny, ["default"], seed=1) and last == wk.run(tiny, ["default"], seed=2)


def test_one_job_runs_here_and_gives_the_same(tiny):
    works = [wk.Work.of(tiny, ["default"], seed=seed) for seed in (1, 2)]
    assert wk.run_many(works, jobs=1, progress=False) == wk.run_many(works, jobs=2, progress=False)


def double(value):
    return 2 * value


def test_each_input_has_one_result_whatever_their_number():
    for count in (0, 1, 7, 50):
        found = dict(each(double, list(range(count)), jobs=3, progress=False))
        assert found == {index: 2 * index for index in range(count)}
