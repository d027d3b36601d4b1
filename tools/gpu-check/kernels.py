"""Checks single kernels: launches them through the driver and compares their results with their
meaning."""

import gzip
from pathlib import Path

import numpy as np

from evaluate import HALVES, Evaluator
from operands import Cache, Step, Unknown, matrix, padded, random_rows, row_bytes, rows_from_bytes
from sequences import States, changes

# Relative errors that are nothing: sums in another order, on tensor cores whose sums are not rounded but cut, and approximate functions.
FLOOR, FLOOR_PRODUCTS = 4e-5, 2e-4


def written(kernel):
    """Operands that the kernel stores to."""
    body = kernel["body"]
    return {s["store"][1] for s in body["segments"]} if "segments" in body else {body[name] for name in ("out", "state") if name in body}


def read(kernel):
    """Rows that the kernel reads."""
    body, found = kernel["body"], set()

    def visit(e):
        if e[0] == "rows":
            found.add(e[1])
        elif e[0] == "rope":
            found.add(e[2])
        for x in e[1:]:
            if isinstance(x, list):
                visit(x)

    for s in body.get("segments", []):
        visit(s["expr"])
    return found | {body[name] for name in ("x", "q", "state") if name in body}


def frequencies(kernel):
    """The operand that has RoPE's frequencies."""
    return kernel["body"].get("inv_freq")


def code(folder, kernel):
    """Its machine code or PTX."""
    path = Path(folder) / kernel["file"]
    return path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())


class Different(Exception):
    """Not the same bits as before."""


class Run:
    """A kernel in device memory with random operands for one step."""

    def __init__(self, xp, cuda, folder, kernel, step):
        self.xp, self.cuda, self.kernel, self.step = xp, cuda, kernel, step
        self.m = step.rows(kernel["rows"])
        self.module = cuda.load(code(folder, kernel))
        self.function = cuda.function(self.module, kernel["entry"], kernel["shared"])
        self.grid = [fixed * (-(-self.m // per) if per else 1) for fixed, per in kernel["grid"]]
        outputs, inputs = written(kernel), read(kernel)
        self.changes = changes(xp, kernel)
        self.values, self.initial, self.addresses = [], [], []
        for i, p in enumerate(kernel["params"]):
            data, value = self.operand(i, p, i not in outputs or i in inputs)
            self.values.append(value)
            self.initial.append(data)
            self.addresses.append(xp.put(xp.join([data, xp.bytes(xp.guard, 0xA5)], 0)))
        before, after = ([xp.put(xp.encode(xp.array(a.reshape(-1), xp.int32), "int32")) for a in some] for some in (step.arrays(), step.wanted_arrays()))
        words = xp.encode(xp.array(np.array(before + step.counts() + after, np.int64), xp.int64), "int64")
        fixed, per = kernel["workspace"]
        self.rest = [xp.put(words), xp.put(xp.bytes(max(fixed + per * self.m, 16), 0))]
        self.arrays = before + after

    def operand(self, i, p, random):
        xp = self.xp
        if p["kind"] == "rows":
            m = self.step.rows(p["rows"])
            if p["elem"] not in ("f32", "fp8", *HALVES):
                raise Unknown(f"rows of {p['elem']}")
            if not random:
                return xp.bytes(m * row_bytes(p["cols"], p["elem"]), 0xFF), None
            if i not in self.changes:
                return random_rows(xp, m, p["cols"], p["elem"])
            data = xp.encode(self.changes[i](xp.normal((m, p["cols"]))), p["elem"])
            data = padded(xp, data, m, row_bytes(p["cols"], p["elem"]), 0xFF).reshape(-1)
            return data, rows_from_bytes(xp, data, m, p["cols"], p["elem"], xp.float32)
        if p["kind"] == "matrix":
            return matrix(xp, p["format"], p["group"], p["n"], p["k"])
        if p["kind"] == "vector":
            value = self.changes.get(i, lambda x: x)(xp.normal((p["len"],)))
            if i == frequencies(self.kernel):
                value = xp.array(10000.0 ** (-np.arange(p["len"]) / p["len"]), xp.float32)
            return xp.encode(value, "f32").reshape(-1), value
        if p["kind"] == "kv":
            if p["elem"] == "int4":
                raise Unknown("a cache of int4")
            value_d, latent = p.get("value_dim", p["head_dim"]), p.get("latent", False)
            cache = Cache(p["elem"], p["heads"], p["head_dim"] - (value_d if latent else 0), value_d, latent)
            pool = cache.pool(xp, self.step.pages, self.step.seen)
            return pool, (cache, pool)
        if p["kind"] == "state":
            states = States(p["heads"], p["rows"], p["cols"])
            pool = states.pool(xp, self.step.pages, self.changes.get(i, lambda x: x))
            return pool, (states, pool)
        raise Unknown(f"an operand of kind {p['kind']!r}")

    def occupancy(self):
        return self.cuda.occupancy(self.function, self.kernel["threads"], self.kernel["shared"])

    def launch(self, addresses=None):
        k = self.kernel
        self.cuda.launch(self.function, self.grid, k["threads"], k["shared"], [*(addresses or self.addresses), *self.rest])

    def results(self):
        """The operands' contents now; complains of writes beyond their end."""
        out = []
        for address, data, p in zip(self.addresses, self.initial, self.kernel["params"]):
            xp = self.xp
            now = xp.get(address, xp.join([data, xp.bytes(xp.guard, 0)], 0))
            if xp.guard and bool((now[-xp.guard :] != 0xA5).any()):
                raise AssertionError(f"wrote beyond the end of an operand ({p['kind']})")
            out.append(now[: data.shape[0]])
        return out

    def close(self):
        self.xp.release([*self.addresses, *self.rest, *self.arrays])
        self.cuda.unload(self.module)

    # ---- comparison ----

    def again(self, now, repeats):
        """Runs it so often in all, from the same operands; complains when other bits come out than in `now`: threads or blocks race. The workspace stays as
        the launch before left it, as in a model."""
        mine = written(self.kernel)
        for run in range(1, repeats):
            for i in mine:
                self.xp.set(self.addresses[i], self.xp.join([self.initial[i], self.xp.bytes(self.xp.guard, 0xA5)], 0))
            self.launch()
            self.cuda.wait()
            for i, (then, first) in enumerate(zip(self.results(), now)):
                if i in mine and not bool((then == first).all()):
                    count = int((then != first).sum())
                    raise Different(f"run {run + 1} stored {count} other bytes in operand {i} than the first: a race")

    def check(self, repeats):
        """Largest error of the results, and the allowed one, relative to the root mean square of
        the row; the same bits in so many runs."""
        self.launch()
        self.cuda.wait()
        now = self.results()
        self.again(now, repeats)
        exact = Evaluator(self.xp, self.kernel, self.step, self.values, True).run()
        theirs = Evaluator(self.xp, self.kernel, self.step, self.values, False).run()
        self.untouched(now, [store for store, _ in exact])
        worst = (0.0, 1.0)
        for (store, want), (_, rounded) in zip(exact, theirs):
            scale = self.xp.sqrt((want * want).mean(-1)[..., None]) + 1e-30
            rounded = self.stored(store, rounded)
            error = self.largest((self.found(store, now) - want) / scale)
            allowed = max(2 * self.largest((rounded - want) / scale), self.floor())
            worst = max(worst, (error, allowed), key=lambda x: x[0] / x[1])
        return worst

    def floor(self):
        body = self.kernel["body"]
        elems = [p.get("elem") for p in self.kernel["params"]] + [(body.get("prologue") or {}).get("elem")]
        return FLOOR_PRODUCTS if body["family"] in ("matmul", "expert_matmul", "attention") and any(e in (*HALVES, "int8", "fp8") for e in elems) else FLOOR

    def largest(self, x):
        """Infinite where there is no number."""
        x = self.xp.where(x == x, self.xp.where(x < 0, -x, x), self.xp.full((1,), float("inf"), x.dtype))
        return float(self.xp.amax(x.reshape((1, -1)), -1)[0])

    def stored(self, store, values):
        """Numbers as the cache would hold them."""
        xp, p = self.xp, self.kernel["params"][store[1]]
        if store[0] in ("rows", "state") or p["elem"] == "f32":
            return values
        if p["elem"] in HALVES:
            return xp.decode(xp.encode(values, p["elem"]), p["elem"], values.dtype)
        heads = values.reshape((self.m, p["heads"], -1))
        scale = xp.amax(xp.where(heads < 0, -heads, heads), -1)[..., None] / 127
        # Half a step away, as the worst rounding is.
        return (heads + 0.5 * scale).reshape(values.shape)

    def found(self, store, now):
        """The kernel's results."""
        xp, p = self.xp, self.kernel["params"][store[1]]
        if store[0] == "rows":
            segment = next(s for s in self.segments() if s["store"] == store)
            rows = rows_from_bytes(xp, now[store[1]], self.step.rows(p["rows"]), p["cols"], p["elem"], xp.float64)
            return rows[:, store[2] : store[2] + segment["n"]]
        if store[0] == "state":
            return self.values[store[1]][0].read(xp, now[store[1]], self.step.firsts(), xp.float64)
        cache, _ = self.values[store[1]]
        part = cache.read(xp, now[store[1]], xp.float64)[store[0] == "value"]
        pages, slots = (xp.array(x, xp.int64) for x in self.step.slots())
        return part[pages, :, slots].reshape((self.m, -1))

    def segments(self):
        """Where the kernel stores, and how many columns."""
        body = self.kernel["body"]
        if "segments" in body:
            # With experts, the columns of all slots.
            return [{**s, "n": s["n"] * body.get("top", 1)} for s in body["segments"]]
        out, k = body["out"], body["k"] if body["family"] == "top_k" else None
        runs = [(0, self.kernel["params"][out]["cols"])] if k is None else [(0, k), (k, k), (2 * k, 1)]
        return [{"store": ["rows", out, at], "n": n} for at, n in runs]

    def untouched(self, now, stores):
        """Everything else is as it was: other operands, other columns, other slots of the cache."""
        xp = self.xp
        for i, (data, before) in enumerate(zip(now, self.initial)):
            mine = [s for s in stores if s[1] == i]
            p = self.kernel["params"][i]
            if not mine:
                same = bool((data == before).all())
            elif p["kind"] == "rows":
                m, size = self.step.rows(p["rows"]), 4 if p["elem"] == "f32" else 2
                columns = np.zeros(row_bytes(p["cols"], p["elem"]), bool)
                # The padding of a row, and the scale of one in fp8, belong to no column.
                columns[0 if p["elem"] == "fp8" else p["cols"] * size :] = True
                for s in mine:
                    n = next(x["n"] for x in self.segments() if x["store"] == s)
                    columns[s[2] * size : (s[2] + n) * size] = True
                same = bool(((data == before).reshape((m, -1)) | (xp.array(columns, xp.int32) > 0)[None]).all())
            elif p["kind"] == "state":
                states = self.values[i][0]
                others = xp.array(np.setdiff1d(np.arange(self.step.pages), self.step.firsts()), xp.int64)
                now_, then = (x.reshape((-1, states.bytes)) for x in (data, before))
                # Other slots, and the padding of the step's slots.
                same = bool((now_[others] == then[others]).all()) and bool((now_[:, 4 * states.numbers :] == then[:, 4 * states.numbers :]).all())
            else:
                same = self.cache_untouched(data, before, [s[0] for s in mine], self.values[i][0])
            if not same:
                raise AssertionError(f"changed what it should not have in operand {i} ({p['kind']})")

    def cache_untouched(self, data, before, which, cache):
        xp = self.xp
        pages, slots = (xp.array(x, xp.int64) for x in self.step.slots())
        places, total = cache.layout()
        data, before = data.reshape((-1, total)), before.reshape((-1, total))
        for i, ((at, size), shape) in enumerate(zip(places, cache.shapes(data.shape[0]))):
            new, old = ((x[:, at : at + size] + xp.bytes(1, 0)).reshape((*shape, size * data.shape[0] // int(np.prod(shape)))) for x in (data, before))
            if ("key", "value")[i % 2] in which:
                axis = 3 if i == 0 else 2
                index = (pages, slice(None), slice(None), slots) if axis == 3 else (pages, slice(None), slots)
                old[index] = new[index]
            if not bool((new == old).all()):
                return False
        return True


# ---- steps ----------------------------------------------------------------------------------------------------------------------


def steps(xp, kernel, small):
    """Steps that a kernel should be right for: one token, as many as its tile has, more; several sequences, long and short."""
    tile = kernel["body"].get("tile_m", 1)
    if small:
        counts = [1, min(tile, 5), 2 * tile + 1 if tile < 32 else tile // 2 + 3]
    else:
        counts = [1, 2, 7, 8] if tile <= 8 else [9, 33, 64] if tile <= 64 else [65, 128, 300]
        if kernel["body"]["family"] not in ("matmul", "attention"):
            counts = [1, 8, 130]
    vocabulary = min([p["n"] for p in kernel["params"] if p["kind"] == "matrix"] or [64])
    longest = 50 if small else 1500
    for n in sorted(set(counts)):
        yield Step(xp, split(n, longest), vocabulary, shuffle=n > 2)


def split(n, longest):
    """`n` tokens of up to three sequences: one far into its text, one at a border of pages, one at its start."""
    if n == 1:
        return [(longest - 3, 1)]
    if n == 2:
        return [(longest, 1), (15, 1)]
    third = max(1, n // 3)
    return [(longest, third), (16, n - 2 * third), (0, third)]


def check(xp, cuda, folder, kernel, small, repeats):
    """A row for `kernel`: the step with the largest error. Raises where its behaviour is wrong
    besides numbers."""
    worst, seen = (0.0, 1.0), {}
    for step in steps(xp, kernel, small):
        run = Run(xp, cuda, folder, kernel, step)
        try:
            worst = max(worst, run.check(repeats), key=lambda x: x[0] / x[1])
            seen = run.occupancy()
        finally:
            run.close()
    return {"family": kernel["body"]["family"], "error": worst[0], "allowed": worst[1], "right": worst[0] <= worst[1], **seen}
