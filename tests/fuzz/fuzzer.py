"""One target under the fuzzer: `python -m tests.fuzz.fuzzer TARGET [libFuzzer's options] CORPUS...`.

Branches are counted in the rooms that the target names, the codecs that `protocol` compiles at run time included.
"""

import sys
from typing import Any

import atheris  # type: ignore[import-not-found, unused-ignore]


def _instrument_generated_codecs() -> None:
    from protocol import codec

    compile_codec = codec._compile

    def compile_and_instrument(*arguments: Any) -> Any:
        return atheris.instrument_func(compile_codec(*arguments))

    codec._compile = compile_and_instrument


def main() -> None:
    """Fuzz until libFuzzer's options say stop. Leaves with its exit code."""
    name = sys.argv.pop(1)
    rooms = {
        "frames": ["broker", "protocol"],
        "sasl": ["broker", "protocol"],
        "tls": ["broker"],
        "decoders": ["protocol"],
    }.get(name, ["storage"])
    with atheris.instrument_imports(include=rooms):
        from tests.fuzz.targets import TARGETS
    _instrument_generated_codecs()
    target = TARGETS[name]
    options: dict[str, Any] = {}
    if target.mutate is not None:
        mutate = target.mutate
        options["custom_mutator"] = lambda data, most, seed: mutate(data, most, seed, atheris.Mutate)
    atheris.Setup([*sys.argv, f"-max_len={target.most_bytes}"], target.check, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
