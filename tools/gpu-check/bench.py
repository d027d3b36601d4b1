"""Runs the plan, in this process."""

import gc
import json
import os
from pathlib import Path

import arrays
import cuda
import kernels
import machine
import report
import speed
from operands import Unknown
from rows import CODE


class Bench:
    """The GPU, PyTorch if there is one, and the kernels' descriptions."""

    def __init__(self, folder, options, scratch):
        self.folder, self.options, self.scratch = Path(folder), options, Path(scratch)
        self.shared = Path(options.get("shared", scratch))
        self.torch = None if options["emulated"] or options.get("plain") else find_torch()
        self.cuda = cuda.Cuda()
        # The driver's stand-in has bounds of its own.
        plain = arrays.Numpy(self.cuda, guard=0 if options["emulated"] else arrays.GUARD)
        # PyTorch computes on the GPU; where this version of it cannot do something, NumPy does it on the processor.
        self.xp, self.spare = (plain, None) if self.torch is None else (arrays.Torch(self.cuda), plain)
        self.management = machine.Management()
        self.described = {}

    def facts(self):
        return {"device": self.cuda.name(), "cuda": self.cuda.driver(), "torch": self.torch and self.torch.__version__}

    def described_kernel(self, folder, name):
        if folder not in self.described:
            self.described[folder] = {k["name"]: k for k in json.loads((self.folder / folder / "kernels.json").read_text())["kernels"]}
        return self.described[folder][name]

    def run(self, item, emit):
        """The row of an item; `emit(id, row)` for further ones. The outcome is part of the row:
        `ok`, `wrong`, `skipped`, or the `error`."""
        row = self.attempt(item, emit)
        if row.pop("retry", False) and self.spare and item["kind"] in ("kernel", "speed", "variant") and self.usable():
            torch, self.xp = self.xp, self.spare
            again = self.attempt(item, emit)
            self.xp = torch
            row = {**again, "said": f"{again.get('said', '')} (with NumPy; PyTorch: {row['said'][:200]})".strip()}
            row.pop("retry", None)
        return row

    def attempt(self, item, emit):
        try:
            row = getattr(self, item["kind"].replace("-", "_"))(item, emit) or {}
            return {"status": "ok" if row.pop("right", True) else "wrong", **row}
        except (Unknown, Absent) as what:
            return {"status": "skipped", "said": str(what)}
        except Exception as error:  # noqa: BLE001: one failing kernel must not hide the others
            # Where the context is lost, freeing fails as well.
            while isinstance(error, cuda.CudaError) and error.__context__ and not error.__suppress_context__:
                error = error.__context__
            # A failure of PyTorch says nothing about us.
            status = "skipped" if item["kind"] in report.PEERS else "error"
            # Neither the driver nor a comparison complained.
            retry = not isinstance(error, (cuda.CudaError, AssertionError, kernels.Different))
            return {"status": status, "said": f"{type(error).__name__}: {str(error)[:600]}", **({"retry": True} if retry else {})}
        finally:
            gc.collect()

    def usable(self):
        """Whether the context has survived."""
        try:
            self.cuda.wait()
            self.cuda.free(self.cuda.alloc(16))
            self.xp.tidy()
            return True
        except Exception:  # noqa: BLE001: it has not
            return False

    # ---- kinds ----

    def machine(self, item, emit):
        return {**machine.peaks(self.cuda, self.torch, self.options), **self.management.now()}

    def single(self, item):
        # Where code came packed, it was unpacked there.
        folder = self.shared / CODE if (self.shared / CODE).exists() else self.folder
        return folder / item["what"]["folder"], self.described_kernel(item["what"]["folder"], item["what"]["kernel"])

    def kernel(self, item, emit):
        folder, kernel = self.single(item)
        row = kernels.check(self.xp, self.cuda, folder, kernel, self.options["emulated"], self.options["repeats"])
        return {**row, "wanted_resident": (kernel.get("schedule") or {}).get("resident")}

    def speed(self, item, emit):
        folder, kernel = self.single(item)
        row = speed.measure(self.xp, self.cuda, folder, kernel, item["what"]["parts"], self.options)
        names = ("what", "goal", "shape", "schedule", "folder", "kernel", "parts")
        return {**{n: item["what"][n] for n in names if n in item["what"]}, **row, **self.management.now()}

    variant = speed

    def peer(self, item, emit):
        if self.torch is None:
            raise Absent("no PyTorch")
        _, kernel = self.single(item)
        return speed.best_peer(self.torch, kernel, speed.whole(self.xp, item["what"]["parts"]), self.options["rotate"], self.options["timed"], self.options["warm"])

    def small(self, item, emit):
        import models

        return models.check_small(self.artifact(item), self.folder, item["what"], "gpu", self.options["emulated"], self.options["repeats"])

    def artifact(self, item):
        import models

        return models.unpacked(self.folder, item["what"]["artifact"], self.shared, self.scratch)

    def architecture(self, item, emit):
        import architectures

        return architectures.check(self.shared / architectures.FOLDER, item["what"]["name"], item["what"]["form"])

    def large(self, item, emit):
        import models

        models.measure_large(self.artifact(item), self.options["steps"], lambda what, row: emit(f"{item['id']}/{what}", row))

    def large_peer(self, item, emit):
        if self.torch is None:
            raise Absent("no PyTorch")
        import models
        import peers

        case, what = item["what"], item["what"]["measure"]
        if what.startswith("prompt"):
            return {"rate": peers.prefill_rate(case["config"], int(what[6:]), self.options)}
        batch, int4 = int(what[6:] or 1), case["format"] != "bf16"
        return peers.decode_rate(case["config"], batch, models.CONTEXT, int4, self.options)


class Absent(Exception):
    """Something that is not on this machine."""


def find_torch():
    """PyTorch, where it finds the GPU."""
    if "LLMCC_CUDA_LIBRARY" in os.environ:
        # A stand-in for the driver has its own memory, which PyTorch cannot reach.
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch
