"""Which programs of the family are trained on, and which are held out to see what was learned.

    python -m benchmarks.learning.splits     # writes held_out.json again; a test holds it to what is committed

- `train`: chains of up to three operations; rows and products with an operation after them from one half only.
- `seen`: new combinations of the same kind, without products, of which there are too few to hold any out.
- `longer`: chains of four to six operations.
- `new_mix`: rows and products with operations after them that never stood there in training.
- `slow`: two inputs element by element, of which training shows badly tuned kernels only.

No combination of operations is in two of them, whatever the shape.

Pure but for the file; knows no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.learning.family import BINARY, SHAPES, UNARY, Spec

HELD_OUT = Path(__file__).with_name("held_out.json")
SPLITS = ("seen", "longer", "new_mix", "slow")
PER_SPLIT, TRAINED = 200, 800
AFTER_TRAINED = ("relu", "double", "silu", "decay", "plus", "root")
AFTER_NEW = tuple(name for name in UNARY if name not in AFTER_TRAINED)
_ROW_CORES = ("sum", "max", "mean", "softmax", "layernorm")
_SEED = 20_261_128

Draw = Callable[[random.Random], Spec]


def _chain(draw: random.Random, fewest: int, most: int, of: tuple[str, ...] = tuple(UNARY)) -> tuple[str, ...]:
    return tuple(draw.choice(of) for _ in range(draw.randint(fewest, most)))


def _plain(draw: random.Random) -> Spec:
    """What training is about, but for two inputs element by element."""
    shape = draw.choice(SHAPES)
    kind = draw.random()
    if kind < 0.45:
        return Spec("map", shape, _chain(draw, 1, 3))
    if kind < 0.8:
        core: Any = draw.choice(_ROW_CORES)
        return Spec(core, shape, _chain(draw, 0, 1), _chain(draw, 0, 1, AFTER_TRAINED))
    return Spec("matmul", shape, (), _chain(draw, 0, 1, AFTER_TRAINED))


def _unseen(draw: random.Random) -> Spec:
    """What `seen` is about: kinds with many more combinations than are drawn."""
    while (spec := _plain(draw)).core == "matmul" or len(spec.before + spec.after) < 2:
        continue
    return spec


def _two_inputs(draw: random.Random) -> Spec:
    second: Any = draw.choice(("same", "row", "column"))
    return Spec("map", draw.choice(SHAPES), _chain(draw, 1, 2), (), second, draw.choice(tuple(BINARY)))


def _longer(draw: random.Random) -> Spec:
    return Spec("map", draw.choice(SHAPES), _chain(draw, 4, 6))


def _new_mix(draw: random.Random) -> Spec:
    core: Any = draw.choice((*_ROW_CORES, "matmul", "matmul"))
    before = () if core == "matmul" else _chain(draw, 0, 1)
    return Spec(core, draw.choice(SHAPES), before, _chain(draw, 1, 2, AFTER_NEW))


_DRAWS: dict[str, Draw] = {"seen": _unseen, "longer": _longer, "new_mix": _new_mix, "slow": _two_inputs}


def train() -> list[Spec]:
    """Programs to train on, in the order of their draw; those of two inputs are a fifth of them."""
    draw = random.Random(_SEED)
    taken = {spec.combination for split in SPLITS for spec in held_out(split)}
    found: dict[Spec, None] = {}
    while len(found) < TRAINED:
        spec = (_two_inputs if draw.random() < 0.2 else _plain)(draw)
        if spec.combination not in taken:
            found.setdefault(spec)
    return list(found)


def shown_tuned(spec: Spec) -> bool:
    """Whether training shows a well tuned kernel of it."""
    return spec.second == "none"


def held_out(split: str) -> list[Spec]:
    """The programs of a split, drawn anew: each once, none in another split."""
    found: dict[Spec, None] = {}
    for name in SPLITS:
        draw = random.Random(f"{_SEED}/{name}")
        own = dict.fromkeys(_distinct(draw, _DRAWS[name], set(found)))
        if name == split:
            return list(own)
        found |= own
    raise ValueError(f"no split {split}: there are {', '.join(SPLITS)}")


def read(split: str) -> list[Spec]:
    """The committed programs of a split."""
    rows = json.loads(HELD_OUT.read_text(encoding="utf-8"))[split]
    return [Spec(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows]


def _distinct(draw: random.Random, one: Draw, but: set[Spec]) -> Iterator[Spec]:
    seen = {spec.combination for spec in but}
    before = len(seen)
    while len(seen) - before < PER_SPLIT:
        spec = one(draw)
        if spec.combination not in seen:
            seen.add(spec.combination)
            yield spec


def main() -> None:
    """Write the held-out lists."""
    lists = {split: [asdict(spec) for spec in held_out(split)] for split in SPLITS}
    lines = [
        f' "{split}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]"
        for split, rows in lists.items()
    ]
    HELD_OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
