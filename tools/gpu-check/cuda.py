"""The CUDA driver through ctypes: modules, launches, graphs and events. $LLMCC_CUDA_LIBRARY names another library than libcuda.so.1."""

import ctypes
import os
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

# Attributes of functions.
REGISTERS, LOCAL_BYTES, MAX_DYNAMIC_SHARED, CARVEOUT = 4, 3, 8, 9
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
CAPTURE_THREAD_LOCAL = 1


class CudaError(RuntimeError):
    """A call of the driver that failed. The context may be lost with it, and with that the process."""


class Cuda:
    """Device 0, its primary context (which PyTorch uses as well) and a stream."""

    def __init__(self):
        self.lib = ctypes.CDLL(os.environ.get("LLMCC_CUDA_LIBRARY", "libcuda.so.1"))
        self.call("cuInit", c_uint(0))
        device, context = c_int(), c_void_p()
        self.call("cuDeviceGet", byref(device), c_int(0))
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.stream = self.made("cuStreamCreate", c_uint(1))

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            text = c_char_p()
            self.lib.cuGetErrorString(c_int(code), byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def made(self, name, *arguments):
        """The handle that a call makes, which is its first argument."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle

    def name(self):
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, c_int(256), c_int(0))
        return text.value.decode()

    def driver(self):
        """The newest CUDA version that the driver knows."""
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    # ---- memory ----

    def alloc(self, size):
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(max(size, 16)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", c_uint64(address))

    def upload(self, address, pointer, size):
        self.call("cuMemcpyHtoDAsync_v2", c_uint64(address), c_void_p(pointer), c_size_t(size), self.stream)
        self.wait()

    def download(self, pointer, address, size):
        self.call("cuMemcpyDtoHAsync_v2", c_void_p(pointer), c_uint64(address), c_size_t(size), self.stream)
        self.wait()

    def copy(self, to, source, size):
        """On the device, in the order of the stream."""
        self.call("cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(source), c_size_t(size), self.stream)

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)

    # ---- kernels ----

    def load(self, image):
        """A module from machine code or PTX."""
        log = ctypes.create_string_buffer(8192)
        options = (c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        module = c_void_p()
        try:
            self.call("cuModuleLoadDataEx", byref(module), c_char_p(image + b"\0"), c_uint(2), options, values)
        except CudaError as error:
            raise CudaError(f"{error}; {log.value.decode(errors='replace').strip()}") from None
        return module

    def unload(self, module):
        self.call("cuModuleUnload", module)

    def function(self, module, name, shared):
        function = self.made("cuModuleGetFunction", module, c_char_p(name.encode()))
        self.call("cuFuncSetAttribute", function, c_int(MAX_DYNAMIC_SHARED), c_int(shared))
        # As the runtime does.
        self.call("cuFuncSetAttribute", function, c_int(CARVEOUT), c_int(100))
        return function

    def occupancy(self, function, threads, shared):
        """Blocks on a multiprocessor, registers and bytes of local memory of a thread, from the
        driver."""
        blocks = c_int()
        self.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(blocks), function, c_int(threads), c_size_t(shared))
        values = []
        for attribute in (REGISTERS, LOCAL_BYTES):
            value = c_int()
            self.call("cuFuncGetAttribute", byref(value), c_int(attribute), function)
            values.append(value.value)
        return {"resident": blocks.value, "registers": values[0], "local": values[1]}

    def launch(self, function, grid, threads, shared, addresses):
        """A launch of a kernel whose parameters are addresses, on the stream."""
        values = [c_uint64(a) for a in addresses]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        sizes = [c_uint(n) for n in (*grid, threads, 1, 1, shared)]
        self.call("cuLaunchKernel", function, *sizes, self.stream, pointers, c_void_p())

    # ---- graphs and times ----

    def graph(self, work):
        """The launches of `work`, as one graph."""
        self.call("cuStreamBeginCapture_v2", self.stream, c_int(CAPTURE_THREAD_LOCAL))
        graph = c_void_p()
        try:
            work()
        finally:
            self.call("cuStreamEndCapture", self.stream, byref(graph))
        try:
            return self.made("cuGraphInstantiateWithFlags", graph, c_uint64(0))
        finally:
            self.call("cuGraphDestroy", graph)

    def replay(self, graph):
        self.call("cuGraphLaunch", graph, self.stream)

    def drop(self, graph):
        self.call("cuGraphExecDestroy", graph)

    def warm(self, work, seconds):
        """Does `work` again and again for so long, at least once: clocks rise, caches fill."""
        began = time.monotonic()
        while True:
            work()
            self.wait()
            if time.monotonic() - began >= seconds:
                return

    def seconds(self, work, repeat):
        """Seconds of the launches that `work` puts on the stream, by events: median, least and
        most."""
        pairs = [[self.made("cuEventCreate", c_uint(0)) for _ in range(2)] for _ in range(repeat)]
        for first, last in pairs:
            self.call("cuEventRecord", first, self.stream)
            work()
            self.call("cuEventRecord", last, self.stream)
        self.wait()
        times = []
        for first, last in pairs:
            ms = c_float()
            self.call("cuEventElapsedTime", byref(ms), first, last)
            times.append(ms.value / 1e3)
            for event in (first, last):
                self.call("cuEventDestroy_v2", event)
        times.sort()
        return times[repeat // 2], times[0], times[-1]
