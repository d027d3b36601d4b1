"""The functions that the evaluator of kernels needs of an array library, for PyTorch (on the GPU)
and for NumPy (where there is none, with the driver's stand-in).

Both have the same operators and the same names for most functions; the differences are here.
`encode` and `decode` convert to the bytes that kernels read: uint8 arrays whose last dimension
is as many times longer as an element has bytes.
"""

import math

import numpy as np

# Bytes after an operand that a kernel must leave alone.
GUARD = 256
# Functions with the same name and meaning.
SHARED = ("float64", "float32", "int32", "int64", "exp", "sqrt", "tanh", "cos", "sin", "where", "maximum", "minimum", "amax", "floor", "log2", "exp2", "log1p", "round")


class Numpy:
    """Arrays of NumPy, copied to the device through the driver."""

    def __init__(self, cuda, seed=1, guard=GUARD):
        self.cuda, self.rng, self.guard = cuda, np.random.default_rng(seed), guard
        for name in SHARED:
            setattr(self, name, getattr(np, name))

    def array(self, values, dtype):
        return np.array(values, dtype)

    def cast(self, x, dtype):
        return x.astype(dtype)

    def permute(self, x, axes):
        return np.ascontiguousarray(x.transpose(axes))

    def join(self, parts, axis):
        return np.concatenate(parts, axis)

    def full(self, shape, value, dtype):
        return np.full(shape, value, dtype)

    def integers(self, low, high, shape):
        return self.rng.integers(low, high, shape, np.int32)

    def normal(self, shape):
        return self.rng.standard_normal(shape, np.float32)

    def top(self, x, k):
        """The largest of each row, descending, and where they are; of equals the first."""
        order = np.argsort(-x, 1, kind="stable")[:, :k]
        return np.take_along_axis(x, order, 1), order

    def erf(self, x):
        return np.vectorize(math.erf, otypes=[x.dtype])(x)

    def encode(self, x, elem):
        if elem == "bf16":
            bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
            return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint8)
        return np.ascontiguousarray(x.astype({"f32": np.float32, "f16": np.float16, "int8": np.int8, "int32": np.int32, "int64": np.int64}[elem])).view(np.uint8)

    def decode(self, data, elem, dtype):
        data = np.ascontiguousarray(data)
        if elem == "bf16":
            return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(dtype)
        return data.view({"f32": np.float32, "f16": np.float16, "int8": np.int8}[elem]).astype(dtype)

    def bytes(self, count, value):
        return np.full(count, value, np.uint8)

    def put(self, data):
        """The address of a copy on the device."""
        data = np.ascontiguousarray(data)
        address = self.cuda.alloc(data.size)
        self.cuda.upload(address, data.ctypes.data, data.size)
        return address

    def get(self, address, like):
        out = np.empty_like(like)
        self.cuda.download(out.ctypes.data, address, out.size)
        return out

    def set(self, address, data):
        """Other bytes where `put` put some."""
        data = np.ascontiguousarray(data)
        self.cuda.upload(address, data.ctypes.data, data.size)

    def tidy(self):
        """Between two kernels."""

    def release(self, addresses):
        for address in addresses:
            self.cuda.free(address)


class Torch:
    """Tensors of PyTorch on the GPU, which kernels read and write where they are."""

    guard = GUARD

    def __init__(self, cuda, device="cuda", seed=1):
        import torch

        self.cuda, self.torch, self.device, self.kept = cuda, torch, device, {}
        torch.manual_seed(seed)
        for name in (*SHARED, "erf"):
            setattr(self, name, getattr(torch, name))
        self.elems = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8, "int32": torch.int32, "int64": torch.int64}

    def array(self, values, dtype):
        return self.torch.as_tensor(np.asarray(values), device=self.device).to(dtype)

    def cast(self, x, dtype):
        return x.to(dtype)

    def permute(self, x, axes):
        return x.permute(axes).contiguous()

    def join(self, parts, axis):
        return self.torch.cat(parts, axis)

    def full(self, shape, value, dtype):
        return self.torch.full(shape, value, dtype=dtype, device=self.device)

    def integers(self, low, high, shape):
        return self.torch.randint(low, high, shape, dtype=self.torch.int32, device=self.device)

    def normal(self, shape):
        return self.torch.randn(shape, dtype=self.torch.float32, device=self.device)

    def top(self, x, k):
        order = self.torch.argsort(x, dim=1, descending=True, stable=True)[:, :k]
        return x.gather(1, order), order

    def encode(self, x, elem):
        return x.to(self.elems[elem]).contiguous().view(self.torch.uint8)

    def decode(self, data, elem, dtype):
        return data.contiguous().view(self.elems[elem]).to(dtype)

    def bytes(self, count, value):
        return self.torch.full((count,), value, dtype=self.torch.uint8, device=self.device)

    def put(self, data):
        data = data.clone().reshape(-1)
        address = data.data_ptr()
        self.kept[address] = data
        # The driver's stream does not wait for PyTorch's.
        self.torch.cuda.synchronize()
        return address

    def get(self, address, like):
        self.cuda.wait()
        return self.kept[address].clone().reshape(like.shape)

    def set(self, address, data):
        self.kept[address].copy_(data.reshape(-1))
        self.torch.cuda.synchronize()

    def tidy(self):
        self.torch.cuda.empty_cache()

    def release(self, addresses):
        for address in addresses:
            del self.kept[address]
