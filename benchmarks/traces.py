"""Scores against seconds: what `bench_time_to_score.py` saves, and the times that are told from it."""

from __future__ import annotations

MARGIN = 0.0025

Trace = list[list[float]]  # [seconds, steps, validation, test]
Curve = list[tuple[float, float, float]]  # (seconds, validation, test)


def has_settled(trace: Trace) -> bool:
    """Whether the last two fifths of the time, in 200 steps or more, brought no better validation score."""
    return trace[-1][1] >= 200 and max(trace, key=lambda point: point[2])[0] < 0.6 * trace[-1][0]


def keep_best(traces: list[Trace]) -> Curve:
    """Means over the traces, each with its best validation score so far and the test score there."""
    events = sorted((point[0], k, point[2:]) for k, trace in enumerate(traces) for point in trace)
    best: dict[int, list[float]] = {}
    curve = []
    for seconds, k, scores in events:
        best[k] = max(best.get(k, scores), scores, key=lambda pair: pair[0])
        if len(best) == len(traces):
            val, test = (sum(column) / len(traces) for column in zip(*best.values()))
            curve.append((seconds, val, test))
    return curve


def find_time(curve: Curve, column: int, goal: float) -> float | None:
    """When the curve comes to the goal to stay."""
    found = None
    for point in reversed(curve):
        if point[column] < goal:
            break
        found = point[0]
    return found


def set_against(ours: list[Trace], theirs: list[Trace]) -> tuple[float, float | None, float | None]:
    """(validation score, our seconds to it, their seconds to it): where the worse of both ended, less the margin."""
    curves = keep_best(ours), keep_best(theirs)
    goal = min(curve[-1][1] for curve in curves) - MARGIN
    first, second = (find_time(curve, 1, goal) for curve in curves)
    return goal, first, second
