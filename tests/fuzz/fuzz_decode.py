"""The long mode of fuzzing, guided by coverage. Needs atheris (pip install atheris), which is not a dependency.

    python -m tests.fuzz.fuzz_decode [decode|kubelet|dra_state|holder] [libFuzzer options: -runs=10000000 ...]

Starts from the saved corpus and the files under tests/data, and keeps what it finds in a folder of its own. An
input that breaks a reader is left as a file named crash-...; put it into tests/fuzz/corpus once the reader is fixed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

try:
    import atheris  # type: ignore[import-untyped]
except ImportError:
    sys.exit("This needs atheris: pip install atheris")

with atheris.instrument_imports(include=["checkpointmanager", "draState", "checkpoint_verify"]):
    from tests.fuzz import seeds, targets


def main() -> None:
    options = sys.argv[1:]
    name = options.pop(0) if options and options[0] in targets.TARGETS else "decode"
    own = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    for number, seed in enumerate(seeds.of(name)):
        (own / f"seed-{number}").write_bytes(seed)
    print(f"fuzzing {name}; what it finds on its way is kept in {own}")
    tokens = f"-dict={Path(__file__).with_name('tokens.dict')}"
    atheris.Setup([sys.argv[0], tokens, "-max_len=2048", *options, str(own)], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
