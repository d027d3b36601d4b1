"""The machine and its limits."""

import ctypes
import os
import platform
import sys
import time

# Bytes of a copy that shows the bandwidth; PTX of a kernel that does nothing.
COPY = 2 << 30
EMPTY = b""".version 7.4
.target sm_80
.address_size 64
.visible .entry empty() { ret; }
"""


class Management:
    """NVIDIA's management library, where it is: clocks and power of GPU 0. Says nothing where there is none."""

    SM_CLOCK, MEMORY_CLOCK = 1, 2

    def __init__(self):
        self.lib = self.device = None
        if "LLMCC_CUDA_LIBRARY" in os.environ:
            # The driver's stand-in has nothing to do with a GPU that may be here.
            return
        try:
            lib = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        device = ctypes.c_void_p()
        if lib.nvmlInit_v2() == 0 and lib.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(device)) == 0:
            self.lib, self.device = lib, device

    def number(self, name, *arguments):
        value = ctypes.c_uint()
        if self.lib is None or getattr(self.lib, name)(self.device, *arguments, ctypes.byref(value)) != 0:
            return None
        return value.value

    def text(self, name, *device):
        text = ctypes.create_string_buffer(96)
        if self.lib is None or getattr(self.lib, name)(*device, text, ctypes.c_uint(len(text))) != 0:
            return None
        return text.value.decode(errors="replace")

    def now(self):
        """Clocks in MHz, power in W, temperature in °C."""
        power = self.number("nvmlDeviceGetPowerUsage")
        return known(
            sm_mhz=self.number("nvmlDeviceGetClockInfo", ctypes.c_int(self.SM_CLOCK)),
            memory_mhz=self.number("nvmlDeviceGetClockInfo", ctypes.c_int(self.MEMORY_CLOCK)),
            power_w=power and power // 1000,
            celsius=self.number("nvmlDeviceGetTemperature", ctypes.c_int(0)),
        )

    def facts(self):
        limit = self.number("nvmlDeviceGetEnforcedPowerLimit")
        return known(
            gpu=self.text("nvmlDeviceGetName", self.device),
            driver=self.text("nvmlSystemGetDriverVersion"),
            power_limit_w=limit and limit // 1000,
            sm_mhz_most=self.number("nvmlDeviceGetMaxClockInfo", ctypes.c_int(self.SM_CLOCK)),
            **self.now(),
        )


def known(**values):
    return {name: value for name, value in values.items() if value is not None}


def header(management, target):
    """The first row of a report: facts known without touching the GPU."""
    return {
        "id": "header",
        "target": target,
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
        **management.facts(),
    }


def peaks(cuda, torch, options):
    """Bytes per second of copying (read and written), seconds of an empty launch in a graph; operations per second of a large bf16 product, where PyTorch is."""
    size = COPY if options["warm"] else 1 << 16
    a, b = cuda.alloc(size), cuda.alloc(size)
    try:
        cuda.call("cuMemsetD8Async", ctypes.c_uint64(a), ctypes.c_ubyte(1), ctypes.c_size_t(size), cuda.stream)
        cuda.warm(lambda: cuda.copy(b, a, size), options["warm"])
        median, least, _ = cuda.seconds(lambda: cuda.copy(b, a, size), options["timed"])
    finally:
        cuda.free(a)
        cuda.free(b)
    row = {"copy": 2 * size / median, "copy_best": 2 * size / least, "launch_us": 1e6 * empty_launch(cuda, options)}
    if torch is not None:
        from speed import torch_seconds

        x, y = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        row["product"] = 2 * 8192**3 / torch_seconds(torch, [lambda: x @ y], options["timed"], options["warm"])
    return row


def empty_launch(cuda, options):
    """Seconds from one kernel of a graph to the next when they do nothing."""
    module, count = cuda.load(EMPTY), 200
    function = cuda.made("cuModuleGetFunction", module, ctypes.c_char_p(b"empty"))
    graph = cuda.graph(lambda: [cuda.launch(function, (1, 1, 1), 32, 0, []) for _ in range(count)])
    try:
        cuda.warm(lambda: cuda.replay(graph), options["warm"])
        return cuda.seconds(lambda: cuda.replay(graph), options["timed"])[0] / count
    finally:
        cuda.drop(graph)
        cuda.unload(module)
