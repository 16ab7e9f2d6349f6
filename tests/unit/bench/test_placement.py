"""Where workers go, for clusters of several shapes."""

from __future__ import annotations

import pytest

from kb_ray.bench.placement import Nodes, place
from kb_ray.errors import ConfigError

CPU_NODE = {"Alive": True, "Labels": {}, "Resources": {"CPU": 8.0}}
GPU_NODE = {"Alive": True, "Labels": {}, "Resources": {"CPU": 96.0, "GPU": 8.0}}
BENCH_NODE = {"Alive": True, "Labels": {"kb-pool": "bench"}, "Resources": {"CPU": 96.0, "GPU": 4.0}}
DEAD_NODE = {**BENCH_NODE, "Alive": False}


def test_one_worker_for_each_gpu_that_is_free() -> None:
    placement = place("cuda", None, [GPU_NODE], {"CPU": 96, "GPU": 8}, {"CPU": 90, "GPU": 6})
    assert (placement.workers, placement.num_gpus, placement.num_cpus) == (6, 1, 1.0)
    assert "label_selector" not in placement.options("kb-bench-r-0", 4)


def test_workers_stay_on_the_nodes_kept_for_them() -> None:
    nodes = [CPU_NODE, GPU_NODE, BENCH_NODE, DEAD_NODE]
    placement = place("cuda", 0, nodes, {"CPU": 200, "GPU": 12}, {"CPU": 200, "GPU": 12})
    assert placement.workers == 4
    assert placement.options("kb-bench-r-0", 4)["label_selector"] == {"kb-pool": "bench"}


def test_without_gpus_one_worker_takes_one_cpu() -> None:
    placement = place("cpu", None, [CPU_NODE], {"CPU": 2}, {"CPU": 2})
    assert (placement.workers, placement.num_cpus, placement.num_gpus) == (1, 1.0, 0)


@pytest.mark.parametrize(("free", "share"), [(2.0, 0.5), (1.0, 0.25), (0.0, 0.0)])
def test_workers_share_the_cpus_that_are_left_rather_than_wait_for_ever(free: float, share: float) -> None:
    assert place("cpu", 4, [CPU_NODE], {"CPU": 2}, {"CPU": free}).num_cpus == share


def test_a_cluster_that_can_still_grow_is_asked_for_whole_cpus() -> None:
    assert place("cpu", 4, [], {}, {}).num_cpus == 1.0


def test_a_cpu_worker_sees_no_gpu() -> None:
    options = place("cpu", 1, [GPU_NODE], {"CPU": 96, "GPU": 8}, {"CPU": 96, "GPU": 8}).options("n", 4)
    assert options["runtime_env"]["env_vars"] == {"CUDA_VISIBLE_DEVICES": ""}


def test_ray_restarts_workers_but_leaves_retries_to_the_pool() -> None:
    options = place("cpu", 1, [CPU_NODE], {"CPU": 2}, {"CPU": 2}).options("kb-bench-r-0", 4)
    assert (options["max_restarts"], options["max_task_retries"]) == (-1, 0)
    assert options["max_concurrency"] > 4, "stats and stop must be heard while every place is taken"


def test_a_missing_gpu_is_the_users_to_settle_unless_the_number_is_given() -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        place("cuda", None, [CPU_NODE], {"CPU": 8}, {"CPU": 8})
    assert place("cuda", 3, [CPU_NODE], {"CPU": 8}, {"CPU": 8}).workers == 3


HEAD = {"Alive": True, "Labels": {"kb-pool": "head"}, "Resources": {"CPU": 4.0}}
ANYONES = {"Alive": True, "Labels": {}, "Resources": {"CPU": 96.0, "GPU": 8.0}}


@pytest.mark.parametrize(
    ("where", "nodes", "labelled"),
    [
        ("auto", [ANYONES], False),
        ("auto", [HEAD], True),
        ("auto", [HEAD, ANYONES], True),
        ("auto", [ANYONES, DEAD_NODE], False),
        ("labelled", [ANYONES], True),
        ("any", [ANYONES, BENCH_NODE], False),
    ],
)
def test_workers_keep_to_labelled_nodes_in_a_cluster_that_has_the_label(
    where: Nodes, nodes: list[dict[str, object]], labelled: bool
) -> None:
    placement = place("cuda", (0, 8), nodes, {"CPU": 96, "GPU": 8}, {"CPU": 96, "GPU": 8}, where=where)
    assert placement.labels == ({"kb-pool": "bench"} if labelled else {})
    assert ("kb-pool=bench" in placement.need) is labelled


def test_a_range_is_taken_as_it_is_and_waits_for_nodes_with_whole_cpus() -> None:
    placement = place("cpu", (0, 8), [HEAD], {"CPU": 4}, {"CPU": 1})
    assert (placement.low, placement.workers, placement.num_cpus) == (0, 8, 1.0)
    assert place("cpu", (0, 8), [CPU_NODE], {"CPU": 4}, {"CPU": 2}).num_cpus == 0.25
    assert place("cpu", (1, 8), [HEAD], {"CPU": 4}, {"CPU": 1}, cpus=6.0).num_cpus == 6.0


@pytest.mark.parametrize(("node", "fits"), [(HEAD, False), (ANYONES, False), (BENCH_NODE, True), (DEAD_NODE, False)])
def test_only_living_nodes_with_label_and_room_may_hold_a_worker(node: dict[str, object], fits: bool) -> None:
    placement = place("cuda", (0, 4), [HEAD, BENCH_NODE], {"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4})
    assert placement.may_hold(node) is fits
    assert not place("cuda", 4, [BENCH_NODE], {}, {}, cpus=97.0).may_hold(BENCH_NODE)
