"""Tests of `workers.py` with workers that are no processes: run by `tests/tests/gpu_check.rs`."""

import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import plan  # noqa: E402
import workers  # noqa: E402


class Report:
    def __init__(self):
        self.rows = {}

    def add(self, row):
        self.rows[row["id"]] = row

    def done(self, name):
        return name in self.rows

    def status(self, name):
        return self.rows[name]["status"]


class Script:
    """Acts on the name of an item; leaves a file in its folder."""

    def __init__(self, folder, options, scratch):
        self.scratch, self.item = scratch, None
        (scratch / "large.weights").write_text("gigabytes")

    def send(self, item):
        self.item = item

    def receive(self, until):
        if self.item is None:
            return {"ready": {"device": "none"}}
        what = self.item.id.split(":")[1].rstrip("0123456789")
        if what == "hang":
            raise TimeoutError
        if what == "die":
            raise EOFError
        return {"row": {"id": self.item.id, "kind": self.item.kind, "status": "ok"}, "done": True, "alive": True}

    def said(self):
        return ""

    def end(self):
        return 9


def lane(shared, scratch):
    return workers.Lane(shared, scratch, {}, scratch, Script)


def item(name, signature=""):
    return plan.Item(f"kernel:{name}", "kernel", {}, signature)


def hanging_signatures_are_left_out(scratch):
    report = Report()
    shared = workers.Shared(report, time.monotonic() + 100)
    names = [("hang1", "a"), ("hang2", "b"), ("hang3", "a"), ("hang4", "a"), ("ok1", "a"), ("hang5", ""), ("hang6", ""), ("hang7", ""), ("ok2", "b")]
    lane(shared, scratch).run([item(*n) for n in names])
    found = {name: report.status(f"kernel:{name}") for name, _ in names}
    wanted = dict.fromkeys(found, "timeout") | {"hang4": "skipped", "ok1": "skipped", "ok2": "ok"}
    assert found == wanted, found


def the_dead_take_nothing_from_others(scratch):
    report = Report()
    shared = workers.Shared(report, time.monotonic() + 100)
    (scratch / "small.weights").write_text("of a model that others open")
    living, dying = lane(shared, scratch), lane(shared, scratch)
    living.run([item("ok1")])
    dying.run([item("die1"), item("ok2"), item("die2")])
    assert [report.status(f"kernel:{n}") for n in ("ok1", "die1", "ok2", "die2")] == ["ok", "died", "ok", "died"]
    left = sorted(f.name for f in scratch.rglob("*.weights"))
    assert left == ["large.weights", "small.weights"] and (living.own / "large.weights").exists(), left
    living.end()
    assert not living.own.exists()


def lanes_share_their_items(scratch):
    report = Report()
    shared = workers.Shared(report, time.monotonic() + 100)
    items = [item(f"ok{i}") for i in range(50)] + [item("die1")]
    workers.side_by_side([lane(shared, scratch) for _ in range(4)], items)
    assert sum(r["status"] == "ok" for r in report.rows.values() if r["id"] != "facts") == 50
    late = workers.Shared(Report(), time.monotonic() - 1)
    workers.side_by_side([lane(late, scratch)], items[:3])
    assert late.not_run == [i.id for i in items[:3]]


for test in (hanging_signatures_are_left_out, the_dead_take_nothing_from_others, lanes_share_their_items):
    with tempfile.TemporaryDirectory() as folder:
        test(Path(folder))
print("all right")
