"""Two ranks against the oracle, which knows of none: token ids and NFE of thirty mixed requests.

Every executor with every KV policy and both kinds of scheduling. An engine each, since starting two
workers costs more than all their forwards; so only some rows are run by default, among which every
column is: the rest has the marker ``matrix``.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.process_report import EXTENSION, check_reports
from tests.distributed.ranks import TWO_RANKS, ending
from tests.distributed.workloads import WORKLOADS

pytestmark = pytest.mark.slow

COUNT = 30
SCHEDULING = {"sync": False, "async": True}
DEFAULT_ROWS = {
    ("mp", "llada-none", "async"),
    ("mp", "llada-prefix", "sync"),
    ("mp", "sdar-block", "async"),
    # `test_ray.py` has "llada-none".
    ("ray", "llada-prefix", "async"),
    ("ray", "sdar-block", "sync"),
}


def rows() -> Iterator[Any]:
    for row in product(("mp", "ray"), WORKLOADS, SCHEDULING):
        marks = [pytest.mark.ray] if row[0] == "ray" else []
        if row not in DEFAULT_ROWS:
            marks.append(pytest.mark.matrix)
        yield pytest.param(*row, marks=marks, id="-".join(row))


@pytest.fixture
def executor(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """Engine arguments."""
    name = request.param
    if name == "ray":
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("cluster"))
    yield {"distributed_executor_backend": name, "worker_extension_cls": EXTENSION}
    if name == "ray":
        import ray

        # Else the next engine's workers find no free CPU.
        ray.shutdown()


@pytest.mark.parametrize(("executor", "workload", "scheduling"), rows(), indirect=["executor"])
def test_two_ranks_equal_the_oracle(
    executor: dict[str, Any], workload: str, scheduling: str, tmp_path: Path
) -> None:
    arguments = TWO_RANKS | executor | {"async_scheduling": SCHEDULING[scheduling]}
    model = WORKLOADS[workload].start(tmp_path, **arguments)
    with ending(model.llm) as llm:
        check_reports(llm.collective_rpc("report"), ranks=2)
        model.check(WORKLOADS[workload].requests(COUNT, 21))
