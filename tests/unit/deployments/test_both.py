"""A model and verdicts over HTTP in one file: `serve deploy` ends whatever its file does not name."""

from __future__ import annotations

from typing import Any

from deployments import bench_app
from kb_ray.serve_file import find, read


def part(name: str) -> dict[str, Any]:
    """The only application of a deployment file."""
    (found,) = read(find(name))["applications"]
    return dict(found)


def test_the_file_with_both_has_the_model_as_its_own_file_has_it_and_the_verdicts_under_a_path() -> None:
    both, alone = read(find("glm45_air_and_bench")), read(find("glm45_air"))
    model, bench = both.pop("applications")
    assert model == part("glm45_air")
    assert both == {key: value for key, value in alone.items() if key != "applications"}
    own = part("bench")
    assert bench["args"] == own["args"] | {
        "device": "cuda", "workers": [0, 8], "token_file": "/home/ray/bench_tokens",
    }  # fmt: skip
    assert bench | {"args": own["args"], "route_prefix": "/"} == own


def test_the_front_goes_to_the_head_where_its_tokens_are_and_never_to_a_node_of_strangers() -> None:
    options = bench_app.build(part("bench")["args"])._bound_deployment.ray_actor_options
    first, then = options["label_selector"], options["fallback_strategy"]
    assert first == {"kb-pool": "head"}
    assert then == [{"label_selector": {"kb-pool": "!in(bench, train)"}}], "where no node has a label"
