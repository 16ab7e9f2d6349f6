"""How a run stands, as text for a terminal. Words from numbers; concludes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping

from kb_ray.score.summary import Estimate
from kb_ray.watching.standing import Standing, ago


def standing_text(found: Standing) -> str:
    """Some ten lines: which run, whether it lives, how far it is, what came of it, what to do."""
    rows = {
        "run": _run(found),
        "store": f"{found.store} ({found.files} files)",
        "state": f"{found.state}: {found.why}" + (f"; {found.starts} starts" if found.starts > 1 else ""),
        "now": _now(found),
        "episodes": _episodes(found),
        "rate": _rate(found),
        "last part": f"{ago(found.since_last_part_s)} ago" if found.since_last_part_s is not None else "none yet",
        "ended by": _counts(found.stop_reasons),
        "verdicts": _counts(found.statuses),
        "solved": _share(found.success, "judged episodes"),
        "faster": _share(found.faster, "judged episodes") if found.faster else "",
    }
    lines = [f"{name + ':':11}{value}" for name, value in rows.items() if value]
    if len(found.success_by_source) > 1:
        width = max(map(len, found.success_by_source))
        lines += [f"  {name:{width}}  {_share(share)}" for name, share in found.success_by_source.items()]
    lines += [
        f"shard {one.shard}: {one.state}, {one.episodes}"
        + (f" of {one.planned} episodes" if one.planned else " episodes")
        + (f", on {one.host}" if one.host else "")
        for one in found.shards
    ]
    lines += [f"damaged:   {line}; move it away to go on" for line in found.damaged]
    return "\n".join([*lines, f"to do:     {_to_do(found)}"])


def _run(found: Standing) -> str:
    if found.run_id is None:
        return "unknown: the store lacks run.json"
    return f"{found.run_id} (fingerprint {found.fingerprint}), model {found.model}, begun {found.begun_at}"


def _now(found: Standing) -> str:
    if found.generating is None or found.waiting_on_model is None:
        return ""
    waiting = found.waiting_on_model - found.generating
    return f"{found.generating} answers under way, {waiting} waiting for the model, {found.waiting_on_bench} on bench"


def _episodes(found: Standing) -> str:
    planned = f" of {found.planned} planned" if found.planned is not None else ""
    if found.planned is not None and found.planned < found.episodes:
        planned = f" in the store, of which the newest start planned {found.planned}"
    redo = f", {found.to_redo} of them failed and are to be redone" if found.to_redo else ""
    earlier = f", {found.superseded} rows of earlier attempts" if found.superseded else ""
    return f"{found.episodes}{planned}{redo}{earlier}"


def _rate(found: Standing) -> str:
    if found.episodes_per_min is None:
        return ""
    left = f", about {ago(found.left_s)} left" if found.left_s is not None else ""
    return f"{found.episodes_per_min:.1f} episodes/min over the last parts{left}"


def _share(share: Estimate, of: str = "") -> str:
    if share.value is None:
        return ""
    interval = "" if share.low is None or share.high is None else f" ({share.low:.1%} to {share.high:.1%})"
    return f"{share.value:.1%}{interval}, {share.count} of {share.n}{' ' + of if of else ''}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _to_do(found: Standing) -> str:
    waiting = [one.resume for one in found.shards if one.resume]
    if waiting:
        return "go on with\n  " + "\n  ".join(waiting)
    if found.state == "running":
        return "nothing, it is running"
    if found.state == "finished":
        return "nothing; python -m kb_ray.report and python -m kb_ray.evaluate show what came of it"
    return f"go on with\n  {found.resume}" if found.resume else "start the same command again to go on"
