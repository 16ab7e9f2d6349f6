"""Processes that learn go to the pool kept for them, also while it has no node, and stay off the others."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.training.placing import BOOT_S, POOL, ROOM_S, place
from kb_ray.training.rl_settings import GrpoSettings

ROOT = Path(__file__).parents[3]


def node(pool: str | None = None, gpus: int = 0, alive: bool = True) -> dict[str, Any]:
    resources: dict[str, float] = {"CPU": 8.0} | ({"GPU": float(gpus)} if gpus else {})
    return {"Alive": alive, "Labels": {"kb-pool": pool} if pool else {}, "Resources": resources}


@pytest.mark.parametrize(
    "others", [[], [node("bench", 1), node("serve", 8)], [node("train", 8, alive=False)], [node(None, 8)]]
)
def test_a_pool_without_nodes_is_waited_for_with_gpus(others: list[dict[str, Any]]) -> None:
    seats = place(8, [node("head"), *others])
    assert (seats.gpus, seats.labels, seats.lacking, seats.start_s) == (True, {"kb-pool": "train"}, 8, BOOT_S)
    assert seats.need == "a GPU on a node labelled kb-pool=train"


def test_a_pool_with_too_few_gpus_is_waited_for_and_one_with_enough_is_not() -> None:
    nodes = [node("head"), node("train", 8), node("bench", 1)]
    assert [place(count, nodes).lacking for count in (8, 12)] == [0, 4]


def test_a_pool_of_machines_without_gpus_learns_on_their_cpus() -> None:
    seats = place(2, [node("head"), node("train"), node("bench", 1)])
    assert (seats.gpus, seats.labels, seats.lacking) == (False, {"kb-pool": "train"}, 0)


def test_without_labels_any_node_will_do_and_none_is_waited_for() -> None:
    for gpus in (0, 2):
        seats = place(2, [node(None, gpus)])
        assert (seats.gpus, seats.labels, seats.start_s) == (gpus > 0, {}, ROOM_S)


def test_where_only_other_pools_are_labelled_it_stays_off_them_and_does_not_count_their_gpus() -> None:
    seats = place(2, [node("bench", 8), node(None, 2)])
    assert (seats.gpus, seats.labels) == (True, {"kb-pool": "!in(bench, serve)"})
    assert not place(2, [node("bench", 8), node()]).gpus


def test_too_few_gpus_on_nodes_that_are_all_there_are_refused() -> None:
    with pytest.raises(ConfigError, match="--train-workers 4: the cluster has 2 GPUs"):
        place(4, [node(None, 2), node("bench", 8)])


def test_the_documented_job_trains_on_the_pool_of_the_cluster_file() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"ray job submit .*kb_ray\.train .*", page)
    words = shlex.split(line)
    options, command = words[: words.index("--")], words[words.index("--") + 1 :]
    assert json.loads(options[options.index("--entrypoint-label-selector") + 1]) == POOL
    # Something must be asked for, or no node comes for it.
    assert int(options[options.index("--entrypoint-num-cpus") + 1]) > 0
    assert command[:4] == ["python", "-m", "kb_ray.train", "grpo"]
    settings = parse_command(GrpoSettings, command[4:], prog="kb_ray.train grpo")
    pools = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())["available_node_types"]
    assert pools["train"]["labels"].items() >= POOL.items()
    assert place(settings.train_workers, [node("head")]).gpus
    assert settings.bench_workers == pools["bench"]["max_workers"]
