"""Value trees as bytes: how arguments and outputs travel between the judge and sandboxed processes.

One canonical encoding per tree (equal trees of equal types give equal bytes), strict on the way in:
decoding arbitrary bytes gives a tree or `WireError`, in time and memory bounded by `Limits`.
Knows neither torch nor sockets: a tensor is a `TensorRef` into a buffer that travels apart.

Layout: a version byte, then one node. A node is a tag byte and its payload; lengths and counts are
minimal little-endian base-128 numbers; floats are IEEE 754 doubles, integers two's complement,
both little-endian; text is UTF-8 with lone surrogates let through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from kb_ray.bench.child.values import (
    DEFAULT_LIMITS,
    Bag,
    DeviceName,
    DTypeName,
    Limits,
    Opaque,
    TensorRef,
    Tree,
    WireError,
)

__all__ = ["DEFAULT_LIMITS", "Bag", "DTypeName", "DeviceName", "Limits", "Opaque", "TensorRef", "Tree"]
__all__ += ["WireError", "decode", "encode"]

VERSION = 1
MAX_KEY = (1 << 60) - 1
"""Largest integer key. Larger ones can be made to hash alike, and thousands of those stop a reader."""
_MAX_NUMBER = (1 << 63) - 1
_DOUBLE = struct.Struct("<d")
_NONE, _FALSE, _TRUE, _INT, _FLOAT, _COMPLEX, _STR, _BYTES = range(8)
_LIST, _TUPLE, _DICT, _TENSOR, _DTYPE, _DEVICE, _OPAQUE, _BAG = range(8, 16)
_GRAD, _STRIDES = 1, 2
"""Flags of a tensor."""


def encode(tree: Tree, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of `tree`; WireError if it holds a value of another type or exceeds the limits.

    Types are matched exactly: a subclass of `int`, `str`, `dict` and so on is refused, never guessed at.
    """
    writer = _Writer(limits)
    writer.node(tree, 1)
    return bytes(writer.out)


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Tree:
    """The tree in `data`, all of it; WireError for anything that `encode` would not have written."""
    if len(data) > limits.max_bytes:
        raise WireError(f"value tree of {len(data)} bytes is over the limit of {limits.max_bytes}")
    reader = _Reader(data, limits)
    if reader.byte() != VERSION:
        raise WireError(f"value tree does not begin with version {VERSION}")
    tree = reader.node(1)
    if reader.at < len(data):
        raise WireError(f"{len(data) - reader.at} bytes follow the value tree")
    return tree


class _Writer:
    def __init__(self, limits: Limits) -> None:
        self.out = bytearray((VERSION,))
        self.limits = limits
        self.nodes = 0

    def node(self, value: Tree, depth: int) -> None:
        self.nodes += 1
        if depth > self.limits.max_depth or self.nodes > self.limits.max_nodes:
            raise WireError("value tree is too deep or has too many nodes")
        write = _WRITE.get(type(value))
        if write is None:
            raise WireError(f"a {type(value).__name__} cannot be sent as a value")
        write(self, value, depth)
        if len(self.out) > self.limits.max_bytes:
            raise WireError(f"value tree is over the limit of {self.limits.max_bytes} bytes")

    def number(self, value: int) -> None:
        if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
            raise WireError(f"{value!r} is no length, count or size")
        while value > 127:
            self.out.append(value & 127 | 128)
            value >>= 7
        self.out.append(value)

    def blob(self, value: bytes) -> None:
        self.number(len(value))
        self.out += value

    def text(self, value: str) -> None:
        if type(value) is not str:
            raise WireError(f"a {type(value).__name__} stands where a str belongs")
        self.blob(value.encode("utf-8", "surrogatepass"))

    def int_(self, value: int, depth: int) -> None:
        size = _int_size(value)
        if size > self.limits.max_int_bytes:
            raise WireError(f"integer of {size} bytes is over the limit of {self.limits.max_int_bytes}")
        self.out.append(_INT)
        self.blob(value.to_bytes(size, "little", signed=True))

    def float_(self, value: float, depth: int) -> None:
        self.out += bytes((_FLOAT,)) + _DOUBLE.pack(value)

    def complex_(self, value: complex, depth: int) -> None:
        self.out.append(_COMPLEX)
        self.out += struct.pack("<dd", value.real, value.imag)

    def tagged(self, tag: int, value: str | bytes) -> None:
        self.out.append(tag)
        if isinstance(value, bytes):
            self.blob(value)
        else:
            self.text(value)

    def sequence(self, value: list[Tree] | tuple[Tree, ...], depth: int) -> None:
        self.out.append(_LIST if type(value) is list else _TUPLE)
        self.number(len(value))
        for item in value:
            self.node(item, depth + 1)

    def dict_(self, value: dict[str | int, Tree], depth: int) -> None:
        self.out.append(_DICT)
        self.number(len(value))
        for key, item in value.items():
            if type(key) is not str and (type(key) is not int or abs(key) > MAX_KEY):
                raise WireError(f"a {type(key).__name__} cannot be sent as a key")
            self.node(key, depth + 1)
            self.node(item, depth + 1)

    def tensor(self, value: TensorRef, depth: int) -> None:
        if len(value.shape) > self.limits.max_dims:
            raise WireError(f"{len(value.shape)} dimensions are over the limit of {self.limits.max_dims}")
        self.out.append(_TENSOR)
        self.number(value.index)
        self.text(value.dtype)
        self.number(len(value.shape))
        for size in value.shape:
            self.number(size)
        strides = value.strides
        if strides is not None and len(strides) != len(value.shape):
            raise WireError(f"{len(strides)} strides for {len(value.shape)} dimensions")
        self.out.append((_GRAD if value.requires_grad else 0) | (_STRIDES if strides is not None else 0))
        for stride in strides or ():
            self.number(stride)

    def bag(self, value: Bag, depth: int) -> None:
        self.tagged(_BAG, value.type_name)
        self.number(len(value.fields))
        for name, item in value.fields.items():
            self.text(name)
            self.node(item, depth + 1)


_WRITE: dict[type, Callable[..., None]] = {
    type(None): lambda writer, value, depth: writer.out.append(_NONE),
    bool: lambda writer, value, depth: writer.out.append(_TRUE if value else _FALSE),
    int: _Writer.int_,
    float: _Writer.float_,
    complex: _Writer.complex_,
    str: lambda writer, value, depth: writer.tagged(_STR, value),
    bytes: lambda writer, value, depth: writer.tagged(_BYTES, value),
    list: _Writer.sequence,
    tuple: _Writer.sequence,
    dict: _Writer.dict_,
    TensorRef: _Writer.tensor,
    DTypeName: lambda writer, value, depth: writer.tagged(_DTYPE, value.name),
    DeviceName: lambda writer, value, depth: writer.tagged(_DEVICE, value.name),
    Opaque: lambda writer, value, depth: writer.tagged(_OPAQUE, value.type_name),
    Bag: _Writer.bag,
}


class _Reader:
    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.limits = limits
        self.at = 0
        self.nodes = 0

    def node(self, depth: int) -> Tree:
        self.nodes += 1
        if depth > self.limits.max_depth or self.nodes > self.limits.max_nodes:
            raise WireError("value tree is too deep or has too many nodes")
        tag = self.byte()
        read = _READ.get(tag)
        if read is None:
            raise WireError(f"byte {self.at - 1}: {tag} is no tag of a value")
        return read(self, depth)

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise WireError(f"value tree ends within a value at byte {len(self.data)}")
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    break
                return value
        raise WireError(f"byte {self.at - 1}: not the shortest form of a number")

    def blob(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        try:
            return self.blob().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise WireError(f"byte {self.at - 1}: text is not UTF-8") from None

    def count(self) -> int:
        # Every item takes at least one byte, so a longer count is a lie told to make us allocate.
        count = self.number()
        if count > len(self.data) - self.at:
            raise WireError(f"byte {self.at - 1}: {count} items cannot fit in what follows")
        return count

    def int_(self, depth: int) -> int:
        raw = self.blob()
        if len(raw) > self.limits.max_int_bytes:
            raise WireError(f"integer of {len(raw)} bytes is over the limit of {self.limits.max_int_bytes}")
        value = int.from_bytes(raw, "little", signed=True)
        if len(raw) != _int_size(value):
            raise WireError(f"byte {self.at - 1}: not the shortest form of an integer")
        return value

    def float_(self, depth: int) -> float:
        return float(_DOUBLE.unpack(self.take(8))[0])

    def dict_(self, depth: int) -> dict[str | int, Tree]:
        result: dict[str | int, Tree] = {}
        for _ in range(self.count()):
            key = self.node(depth + 1)
            if type(key) is not str and (type(key) is not int or abs(key) > MAX_KEY):
                raise WireError(f"byte {self.at - 1}: a key is neither str nor small int")
            if key in result:
                raise WireError(f"byte {self.at - 1}: a key stands twice")
            result[key] = self.node(depth + 1)
        return result

    def tensor(self, depth: int) -> TensorRef:
        index, dtype, dims = self.number(), self.text(), self.count()
        if dims > self.limits.max_dims:
            raise WireError(f"{dims} dimensions are over the limit of {self.limits.max_dims}")
        shape = tuple(self.number() for _ in range(dims))
        flags = self.byte()
        if flags & ~(_GRAD | _STRIDES):
            raise WireError(f"byte {self.at - 1}: a flag that does not exist is set")
        strides = tuple(self.number() for _ in range(dims)) if flags & _STRIDES else None
        return TensorRef(index, dtype, shape, bool(flags & _GRAD), strides)

    def bag(self, depth: int) -> Bag:
        type_name, fields = self.text(), {}
        for _ in range(self.count()):
            name = self.text()
            if name in fields:
                raise WireError(f"byte {self.at - 1}: a field stands twice")
            fields[name] = self.node(depth + 1)
        return Bag(type_name, fields)


_READ: dict[int, Callable[[_Reader, int], Tree]] = {
    _NONE: lambda reader, depth: None,
    _FALSE: lambda reader, depth: False,
    _TRUE: lambda reader, depth: True,
    _INT: _Reader.int_,
    _FLOAT: _Reader.float_,
    _COMPLEX: lambda reader, depth: complex(reader.float_(depth), reader.float_(depth)),
    _STR: lambda reader, depth: reader.text(),
    _BYTES: lambda reader, depth: reader.blob(),
    _LIST: lambda reader, depth: [reader.node(depth + 1) for _ in range(reader.count())],
    _TUPLE: lambda reader, depth: tuple([reader.node(depth + 1) for _ in range(reader.count())]),
    _DICT: _Reader.dict_,
    _TENSOR: _Reader.tensor,
    _DTYPE: lambda reader, depth: DTypeName(reader.text()),
    _DEVICE: lambda reader, depth: DeviceName(reader.text()),
    _OPAQUE: lambda reader, depth: Opaque(reader.text()),
    _BAG: _Reader.bag,
}


def _int_size(value: int) -> int:
    """Bytes of the shortest two's complement form; 0 takes one byte."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1
