"""What autotile says of a search: its choice in a line, and the figures of all candidates."""

from __future__ import annotations

from itertools import islice

from stripe.analysis.cost_problem import CostModel
from stripe.analysis.search import Candidate, Found
from stripe.passes.autotile_explicit import smallest

REPORTED = 100  # candidates of each kind that a remark keeps


def best_of(found: Found) -> Candidate:
    """The cheapest that fits, else (a tile that is given is made all the same) the one that needs least."""
    return found.best or smallest(found)


def summary(found: Found, model: CostModel) -> str:
    """What was chosen, at what cost, and what comes next, for a remark."""
    best, *others = list(islice(found.ranked(fitting=True), 2)) or [smallest(found)]
    if best.cost is None:
        capacity, resource = found.limits[best.exceeded]
        return f"tiled {_sizes_text(best)}, which needs {best.needed} of {capacity} {resource}"
    text = f"tiled {_sizes_text(best)} at {best.cost:.4g} {model.unit}"
    of = "" if found.capacity is None else f"of {found.capacity} "
    text += f" ({best.needed} {of}{found.resource})"
    if others:
        text += f"; next {_sizes_text(others[0])} at {others[0].cost:.4g}"
    return text


def _sizes_text(candidate: Candidate) -> str:
    return " ".join(f"{name}:{size}" for name, size in candidate.sizes.items()) or "in one tile"


def counts(found: Found) -> dict[str, object]:
    """What reports show of a search: how much was weighed, and the candidates."""
    excluded = int((~found.rows.fits).sum())
    return {
        "weighed": found.weighed,
        "excluded": excluded,
        "visited": found.visited,
        "possible": found.possible,
        "complete": found.complete,
        "seconds": found.seconds,
        "candidates": [row_of(c, found) for c in found.first(REPORTED)],
    }


def expected(candidate: Candidate, model: CostModel, times: int) -> dict[str, object]:
    """The cycles that the model expects of one execution of the block, of how many there are, how long
    each part of the target is busy with it, and the unit, as far as it tells."""
    found = model.evaluate(candidate.sizes, candidate.order)
    if found.computing is None:
        return {}
    points = max(leaf.points for leaf in model.problem.leaves)
    parts = {name: round(float(cycles), 1) for name, cycles in found.parts.items()}
    cycles, computing = float(found.cost) * points, float(found.computing)
    return {
        "executions": times,
        "cycles": round(cycles, 1),
        "computing": round(computing, 1),
        "parts": parts,
    }


def row_of(candidate: Candidate, found: Found) -> dict[str, object]:
    """A candidate as data of a remark: its sizes, and its cost or the limit that it exceeds."""
    row: dict[str, object] = {"sizes": dict(candidate.sizes), "needed": candidate.needed}
    if candidate.cost is None:
        capacity, resource = found.limits[candidate.exceeded]
        row["limit"] = f"needs {candidate.needed} of {capacity} {resource}"
    else:
        row |= {"cost": candidate.cost, "order": list(candidate.order)}
    return row
