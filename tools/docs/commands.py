"""The options of every command, taken from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NoReturn
from unittest import mock

from checkpoint_verify.commands import build_parser
from dra_agent import cli, operate

from . import __main__ as own
from .pages import ROOT

OF_THE_BENCHMARK = ("diskcache", "lmdb", "rocksdict")


def parsers() -> list[argparse.ArgumentParser]:
    """The parser of every command that is written in Python."""
    return [
        build_parser(),
        cli._parser(),
        operate._parser(),
        _parser_in("releasing.__main__"),
        _parser_in("soak_run"),
        *_parsers_of_the_benchmark(),
        own.parser(),
    ]


def as_markdown() -> str:
    """The page of all commands."""
    parts = ["# Commands", "Every option of every command, as `--help` prints it."]
    for parser in parsers():
        for each in [parser, *_subcommands(parser)]:
            level = "##" if each is parser else "###"
            name = each.prog if parser.prog != "dra-agent" or each is not parser else _titled(parser)
            parts += [f"{level} {name}", f"```text\n{_help(each)}```"]
    shown = subprocess.run([ROOT / "tools/test", "--help"], capture_output=True, text=True, check=True).stdout
    parts += ["## tools/test", f"```text\n{shown}```"]
    return "\n\n".join(parts) + "\n"


def _titled(parser: argparse.ArgumentParser) -> str:
    return "dra-agent on a running agent" if any(_subcommands(parser)) else "dra-agent"


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield subparser
                yield from _subcommands(subparser)


def _help(parser: argparse.ArgumentParser) -> str:
    """Its help for a page 80 columns wide, without a terminal's colours."""
    wide = {"COLUMNS": "80", "NO_COLOR": "1"}
    with mock.patch.dict("os.environ", wide):
        return parser.format_help()


class _Parsing(BaseException):
    """A command has built its parser and is about to use it."""


def _parser_in(module: str) -> argparse.ArgumentParser:
    """The parser that a command makes in its main()."""

    def caught(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        raise _Parsing(parser)

    main: Callable[[], object] = importlib.import_module(module).main
    with mock.patch.object(argparse.ArgumentParser, "parse_args", caught):
        try:
            main()
        except _Parsing as reached:
            parser = reached.args[0]
            assert isinstance(parser, argparse.ArgumentParser)
            return parser
    raise AssertionError(f"{module} parses no options")


def _parsers_of_the_benchmark() -> list[argparse.ArgumentParser]:
    """Imported without the databases that it measures: only its parsers are wanted, and its extra is large."""
    missing = {name: mock.MagicMock() for name in OF_THE_BENCHMARK if find_spec(name) is None}
    before = set(sys.modules)
    sys.modules.update(missing)
    try:
        return [_parser_in("bench.__main__"), _parser_in("bench.etcd")]
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("bench", *missing):
                del sys.modules[name]
