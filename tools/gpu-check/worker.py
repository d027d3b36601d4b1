"""A process that does items of the plan until one of them takes the GPU's context with it. Started by `gpu_check.py`, which kills it when one takes too long.

Items come as lines of JSON on the standard input; rows go as lines to the file descriptor that
the second argument names, since libraries print to the standard output.
"""

import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "python")]


def main():
    start, out = json.loads(sys.argv[1]), os.fdopen(int(sys.argv[2]), "w")

    def send(**message):
        out.write(json.dumps(message) + "\n")
        out.flush()

    # Loading PyTorch and opening the GPU takes seconds: they count for no item.
    from bench import Bench

    bench = Bench(start["folder"], start["options"], start["scratch"])
    send(ready=bench.facts())
    for line in sys.stdin:
        item = json.loads(line)
        row = bench.run(item, lambda name, extra: send(row={"id": name, "kind": item["kind"], "status": "ok", **extra}))
        alive = row["status"] in ("ok", "wrong") or bench.usable()
        send(row={"id": item["id"], "kind": item["kind"], **row}, done=True, alive=alive)
        if not alive:
            # Nothing can be freed any more.
            os._exit(1)


if __name__ == "__main__":
    main()
