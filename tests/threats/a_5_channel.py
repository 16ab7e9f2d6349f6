"""A67 to A73: spoofed answers, odd endings, objects and hooks meant for whoever reads them."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.pieces import FORGING, NATIVE_LIBRARY, computing, forged
from tests.threats.record import Threat, status

CRASH, STRUCTURE, RUNTIME = status("crash"), status("wrong_structure"), status("runtime_error")
MISMATCH, FORBIDDEN, IMPORT = status("mismatch"), status("forbidden"), status("import_error")
FORGED = {
    "the answer": ("done(tree=REF, copied=True)", MISMATCH | status("nonfinite")),
    "a verdict": ("done(tree=REF, copied=True, status='ok', correct=True, speedup=9.0, trusted=True)",
                  MISMATCH | status("nonfinite")),
    "a dtype": ("done(tree=V.TensorRef(0, 'odd', (3,)), copied=True)", STRUCTURE),
    "an index": ("done(tree=V.TensorRef(7, 'float32', (100, 33)), copied=True)", STRUCTURE),
    "a size": ("done(tree=V.TensorRef(0, 'float32', (1 << 62, 1 << 62)), copied=True)", STRUCTURE),
    "a negative size": ("done(tree=V.TensorRef(0, 'float32', (-1, 33)), copied=True)", STRUCTURE),
    "a device": ("done(tree=V.DeviceName('nowhere'), copied=True)", STRUCTURE),
    "half characters": ("done(tree=V.Opaque(chr(0xD800)), copied=True)", STRUCTURE),
    "no answer": ("done()", STRUCTURE),
    "an exception": ("raised(type=7, bases=7, message=chr(0xD800), line=1 << 8000)", RUNTIME),
    "an exception of ours": ("raised(type='InfraError', bases=['InfraError'], message='the judge is gone', line=1)",
                             RUNTIME),
    "no frame": ("os.write(sock(), bytes(64))", CRASH),
    "a pickle": ("os.write(sock(), __import__('base64').b64decode('gAN9cQAu'))", FORBIDDEN),
    "a size of frame": ("os.write(sock(), struct.pack('<IBHQ', 0x6B625231, 40, 0, 1 << 62))", CRASH),
    "descriptors": ("os.write(sock(), struct.pack('<IBHQ', 0x6B625231, 40, 9, 0))", CRASH),
    "an unknown kind": ("send(99, part('child.message').pack(tree=REF, copied=True))", MISMATCH | CRASH),
    "a request of the judge": ("send(1, part('child.message').pack(tree=REF, copied=True))", MISMATCH | CRASH),
}  # fmt: skip
ENDINGS = {
    "os._exit(0)": ("import os; os._exit(0)", CRASH),
    "sys.exit(0)": ("import sys; sys.exit(0)", RUNTIME),
    "SystemExit": ("raise SystemExit(0)", RUNTIME),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", RUNTIME),
    "GeneratorExit": ("raise GeneratorExit", RUNTIME),
    "abort": ("import os; os.abort()", CRASH),
    "a signal to itself": ("import os; os.kill(os.getpid(), 9)", CRASH),
    "a signal without a name": ("import os; os.kill(os.getpid(), 40)", CRASH),
    "all descriptors closed": ("import os; os.closerange(3, 512)", CRASH),
    "half a character": ("raise ValueError(chr(0xD800))", RUNTIME),
    "an exception that cannot be said": ("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", RUNTIME),
    "a recursion without end": ("f = lambda g: g(g); f(f)", RUNTIME),
}
LINE = '{"request_id": "x", "status": "ok", "correct": true, "speedup": 99.0, "trusted": true}'
REDUCED = """
import os
class E{base}:
    def __reduce__(self):
        return (open, (os.path.expanduser("~/reduced"), "w"))
    __reduce_ex__ = lambda s, p: s.__reduce__()
"""
HOOK = """
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None):
        raise ImportError("nobody imports any more")
sys.meta_path.insert(0, Finder())
for name in ("json", "pickle", "numpy.testing"):
    sys.modules[name] = types.ModuleType(name)
"""
SHADOWS = {
    "builtins replaced": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.all = lambda v: True",
    "hash and equality replaced": "import builtins\nbuiltins.hash = lambda v: 0\nbuiltins.zip = lambda *a, **k: []",
    "modules replaced": "import sys, types\nfor n in ('struct', 'socket', 'os'):\n"
    "    sys.modules[n] = types.ModuleType('m')",
    "an importer that refuses": HOOK,
    "print replaced": "import builtins\nbuiltins.print = lambda *a, **k: None",
    "warnings turned into errors": "import warnings\nwarnings.simplefilter('error')",
}
LATE = """
import atexit, os, signal
def rewritten(*a):
    os.write(1, b'rewritten')
    os._exit(0)
atexit.register(rewritten)
for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, rewritten)
class D:
    __del__ = rewritten
kept = D()
"""
OBFUSCATED = {
    "exec": "exec(base64.b64decode('cGFzcw=='))",
    "exec out of builtins": "vars(__builtins__)['ex' + 'ec']('pass')",
    "eval by getattr": "getattr(__builtins__, 'ev' + 'al')('1')",
    "compile": "compile('pass', 'f', 'ex' + 'ec')",
    "marshal": "import marshal; marshal.loads(b'N')",
    "a subclass walk": "().__class__.__base__.__subclasses__()",
    "a function's globals": "(lambda: 0).__globals__",
    "a function's code": "(lambda: 0).__code__",
    "an import by a made name": "__import__('sub' + 'process')",
}

THREATS = [
    *(Threat("A67", f"forges {what}", forged(statement), expected) for what, (statement, expected) in FORGED.items()),
    Threat(
        "A67",
        "forges many answers at import",
        FORGING + KERNEL + "\nfor _ in range(100): done(tree=REF, copied=True, entry='x')\ntime.sleep(99)\n",
        MISMATCH | status("nonfinite"),
    ),
    Threat("A67", "shrinks shared memory", first("import os\n    [os.ftruncate(f, 0) for f in range(3, 64)]"), RUNTIME),
    Threat(
        "A67",
        "shrinks shared memory and dies",
        FORGING
        + first("[truncated(f) for f in range(3, 64)]; os.abort()")
        + "def truncated(f):\n    try: os.ftruncate(f, 0)\n    except OSError: pass\n",
        CRASH,
    ),
    Threat(
        "A67",
        "writes an answer to every descriptor and ends",
        first("import os\n    [written(f) for f in range(3, 64)]; os._exit(0)")
        + f"import os\ndef written(f):\n    try: os.write(f, {LINE!r}.encode())\n    except OSError: pass\n",
        CRASH,
    ),
    Threat(
        "A68",
        "prints a verdict",
        first(f"print({LINE!r})").replace("return out", "return out * 0"),
        MISMATCH,
        where="both",
    ),
    Threat(
        "A68",
        "prints a verdict and ends",
        first(f"import os; os.write(1, {(LINE + chr(10))!r}.encode()); os._exit(0)"),
        CRASH,
        where="both",
    ),
    Threat(
        "A68",
        "prints a verdict at import and at exit",
        f"import atexit\nprint({LINE!r})\natexit.register(print, {LINE!r})\n" + first("raise SystemExit(0)"),
        RUNTIME,
        where="both",
    ),
    Threat(
        "A68",
        "prints a verdict to the true output",
        first(f"import sys; sys.__stdout__.write({LINE!r}); sys.__stderr__.write({LINE!r})").replace(
            "return out", "return out * 0"
        ),
        MISMATCH,
    ),
    *(
        Threat("A69", f"ends by {what}", first(statement), expected, where="both")
        for what, (statement, expected) in ENDINGS.items()
    ),
    Threat("A69", "ends at import by sys.exit(0)", KERNEL + "import sys\nsys.exit(0)\n", IMPORT, where="both"),
    Threat("A69", "ends at import by os._exit(0)", KERNEL + "import os\nos._exit(0)\n", CRASH | IMPORT, where="both"),
    Threat("A70", "handlers for the end", LATE + changed("return out", "return out * 0"), MISMATCH, where="both"),
    Threat(
        "A70",
        "handlers for the end, and no end",
        LATE + first("import time; time.sleep(99)"),
        status("timeout"),
        where="both",
        settings={"timeout_s": 1.5},
    ),
    Threat(
        "A70", "an alarm that ends its process", first("import signal, time; signal.alarm(1); time.sleep(9)"), CRASH
    ),
    Threat(
        "A71",
        "an output that unpickles into something else",
        REDUCED.format(base="") + changed("return out", "return E()"),
        STRUCTURE,
        where="both",
    ),
    Threat(
        "A71",
        "an exception that unpickles into something else",
        REDUCED.format(base="(Exception)") + first("raise E()"),
        RUNTIME,
        where="both",
    ),
    Threat(
        "A71",
        "a tensor that unpickles into something else",
        REDUCED.format(base="") + changed("return out", "out.note = E()\n    return out * 0"),
        MISMATCH,
        where="both",
    ),
    Threat("A71", "pickle", "import pickle\n" + KERNEL, FORBIDDEN),
    *(
        Threat(
            "A72",
            name,
            changed("return out", "return out * 0") + f"\n{patch}\n",
            MISMATCH | STRUCTURE | RUNTIME | CRASH,
        )
        for name, patch in SHADOWS.items()
    ),
    Threat("A72", "a trace function", first("import sys; sys.settrace(print)"), FORBIDDEN),
    Threat(
        "A72", "a profile function for all threads", first("import threading; threading.setprofile(print)"), FORBIDDEN
    ),
    Threat(
        "A72",
        "a trace function without being seen",
        computing("(getattr(sys, ''.join(['set', 'trace']))(lambda *a: None), copied(x))[1]") + "import sys\n",
        MISMATCH,
    ),
    *(Threat("A73", name, f"import base64\n{first(statement)}", FORBIDDEN) for name, statement in OBFUSCATED.items()),
    Threat(
        "A73",
        "code made out of the scanner's sight",
        computing("run('torch.relu(x + y)', {'x': x, 'y': y, 'torch': torch})")
        + "import sys\nrun = getattr(sys.modules[''.join(['built', 'ins'])], ''.join(['ev', 'al']))\n",
        status("no_kernel"),
    ),
    Threat(
        "A73",
        "native code out of the scanner's sight",
        NATIVE_LIBRARY + computing("(c.memmove(x.data_ptr(), y.data_ptr(), 400), copied(x))[1]"),
        MISMATCH | status("mutated_input"),
    ),
]
