#!/usr/bin/env python3
"""How long a running job pauses when it is switched, for every ordered pair of strategies.

A job of real processes goes through all pairs, a few times. The pause of a switch is the time between
the end of the last step before it and the end of the first one after it, less a normal step: the median
of those that follow in the new strategy.

    bench/switches/switches.py --binaries build/release/bin --json pauses.json

Standard library only. Exit code 1 if the job fails, 2 if a pause is above --limit-ms.
"""

import argparse
import contextlib
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

STRATEGIES = {
    "replicate": {"stage": 0},
    "stage 1": {"stage": 1},
    "stage 2": {"stage": 2},
    "stage 3": {"stage": 3},
    "servers": {"sync": "PARAMETER_SERVER"},
}
PIXELS, CLASSES = 12 * 12, 10


def write_data(directory, count):
    """Noise: what a step costs does not depend on what it learns."""
    source = random.Random(1)
    (directory / "images").write_bytes(
        struct.pack(">IIII", 0x803, count, 12, 12) + source.randbytes(count * PIXELS))
    (directory / "labels").write_bytes(
        struct.pack(">II", 0x801, count) + bytes(source.randrange(CLASSES) for _ in range(count)))


def hidden_sizes(parameters):
    """Two equal hidden layers of a perceptron with about so many parameters."""
    size = 1
    while PIXELS * size + size * size + size * CLASSES + 2 * size + CLASSES < parameters:
        size += 1
    return [size, size]


def tour(names):
    """A closed walk through the complete directed graph that takes each edge once (Hierholzer)."""
    unused = {name: [other for other in names if other != name] for name in names}
    stack, walk = [names[0]], []
    while stack:
        if unused[stack[-1]]:
            stack.append(unused[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[::-1]


def measure(arguments, directory):
    names = arguments.strategies
    walk = tour(names)
    walk = walk + walk[1:] * (arguments.rounds - 1)
    every = arguments.steps
    job = {
        "name": "switches",
        "model": {"mlp": {"hidden": hidden_sizes(arguments.parameters)}},
        "data": {"idx": {"train_images": str(directory / "images"),
                         "train_labels": str(directory / "labels"), "classes": CLASSES}},
        "training": {"steps": every * len(walk), "global_batch": 4 * arguments.workers,
                     "micro_batch": 4, "seed": 1, "optimizer": {"adamw": {}},
                     "learning_rate": {"peak": 1e-4}},
        "strategy": STRATEGIES[walk[0]],
        "switches": [{"after_step": every * (i + 1), "strategy": STRATEGIES[name]}
                     for i, name in enumerate(walk[1:])],
    }
    (directory / "job.json").write_text(json.dumps(job))
    # Checkpoints are no part of the question.
    run = subprocess.run(
        [pathlib.Path(arguments.binaries) / "muster", "up", "--job", directory / "job.json",
         "--workers", str(arguments.workers), "--run-directory", directory / "run",
         "--listen", "127.0.0.1:0"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"the job failed:\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}")
    steps = {}
    for file in (directory / "run").glob("**/metrics.jsonl"):
        for line in file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record["kind"] == "step":
                    steps[record["step"]] = record
    return walk, steps


def pauses_of(walk, steps, every):
    """(normal step in ms by strategy, list of pauses in ms by pair)."""
    of_strategy = {}
    for i, name in enumerate(walk):
        # The first step after a switch is the one that is looked at.
        for step in range(every * i + 2, every * (i + 1) + 1):
            of_strategy.setdefault(name, []).append(steps[step]["step_time_ms"])
    normal = {name: statistics.median(times) for name, times in of_strategy.items()}
    pauses = {}
    for i in range(1, len(walk)):
        before, after = walk[i - 1], walk[i]
        gap = 1000 * (steps[every * i + 1]["time"] - steps[every * i]["time"])
        pauses.setdefault((before, after), []).append(gap - normal[after])
    return normal, pauses


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binaries", default="build/release/bin")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="times that each pair is switched")
    parser.add_argument("--steps", type=int, default=6, help="between two switches")
    parser.add_argument("--strategies", default=",".join(STRATEGIES),
                        type=lambda text: text.split(","))
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--limit-ms", type=float, help="the median of each pair must be below")
    arguments = parser.parse_args()
    unknown = set(arguments.strategies) - set(STRATEGIES)
    if unknown or len(arguments.strategies) < 2 or min(arguments.steps, arguments.rounds) < 1:
        parser.error(f"expected two or more of {', '.join(STRATEGIES)}; got {unknown or 'fewer'}")
    if arguments.steps < 3:
        parser.error("--steps: expected at least 3, to know a normal step")
    with tempfile.TemporaryDirectory(prefix="muster-switches-") as name:
        directory = pathlib.Path(name)
        write_data(directory, 1024)
        walk, steps = measure(arguments, directory)
    normal, pauses = pauses_of(walk, steps, arguments.steps)

    print(f"{arguments.workers} workers, {arguments.parameters} parameters, "
          f"{arguments.rounds} switches of each pair; a normal step takes "
          + ", ".join(f"{name} {normal[name]:.0f} ms" for name in arguments.strategies))
    print(f"{'from':>10} {'to':>10} {'median ms':>10} {'least':>8} {'most':>8}")
    rows = []
    for before in arguments.strategies:
        for after in arguments.strategies:
            if before == after:
                continue
            times = pauses[(before, after)]
            rows.append({"from": before, "to": after, "pause_ms": times,
                         "median_ms": statistics.median(times)})
            print(f"{before:>10} {after:>10} {statistics.median(times):10.0f} {min(times):8.0f} "
                  f"{max(times):8.0f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"workers": arguments.workers, "parameters": arguments.parameters,
             "normal_step_ms": normal, "pauses": rows}, indent=1) + "\n")
    worst = max(row["median_ms"] for row in rows)
    print(f"the longest median pause is {worst:.0f} ms")
    if arguments.limit_ms is not None and worst >= arguments.limit_ms:
        sys.exit(2)


if __name__ == "__main__":
    main()
