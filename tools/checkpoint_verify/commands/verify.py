"""verify: check everything, and report what is wrong, what it means and what to do next."""

from __future__ import annotations

import argparse

from .. import exitcodes
from ..findings.search import search
from ..findings.summary import summaries_of_search, summary_of
from ..screens import prometheus
from ..screens.documents import print_document, verify_document
from ..screens.report import print_report
from ..screens.screen import FAINT, complain, progress, screen

HELP = "check directories and files (the default)"
EXAMPLES = """\
  checkpoint-verify /var/lib/agent/claims
  checkpoint-verify --find /var/lib                          where does this node keep state, and is it good?
  checkpoint-verify --json /var/lib/kubelet | jq .verdict
  checkpoint-verify --quiet --prometheus /var/lib/node_exporter/checkpoints.prom /var/lib/agent/claims
"""
MANY_DIRECTORIES = 500  # are searched before the screen counts them
MANY_FILES = 5000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a directory of checkpoints, kubelet's directory, or a file"
    )
    parser.add_argument(
        "--find", action="store_true", help="search PATH and everything below it for state, and check what is found"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="print nothing; only set the exit code")
    parser.add_argument("--all", action="store_true", help="show every problem, even if many are of the same kind")
    parser.add_argument("--strict", action="store_true", help="count warnings as damage")
    parser.add_argument(
        "--prometheus", metavar="FILE", help="also write metrics for node_exporter's textfile collector"
    )


def run(arguments: argparse.Namespace) -> int:
    paths = list(dict.fromkeys(arguments.paths))
    shown = screen(quiet=arguments.quiet or arguments.json)
    searches = []
    if arguments.find:
        with progress("searching directories", MANY_DIRECTORIES, wanted=not arguments.quiet) as step:
            searches = [search(path, step) for path in paths]
        paths = list(dict.fromkeys(place for done in searches for place in done.found))
    with progress("checking files", MANY_FILES, wanted=not arguments.quiet) as step:
        summaries = [summary_of(path, kubelet_version=arguments.kubelet_version, step=step) for path in paths]
    summaries += [summary for done in searches for summary in summaries_of_search(done)]
    code = exitcodes.worst([summary.exit_code(strict=arguments.strict) for summary in summaries])
    if arguments.json and not arguments.quiet:
        print_document("verify", code, verify_document(summaries, searches, strict=arguments.strict))
    else:
        print_report(summaries, shown, strict=arguments.strict, each=arguments.all)
        for done in searches:
            shown.say((f"({done})", FAINT))
    if arguments.prometheus:
        code = exitcodes.worst(
            [code, _write_metrics(arguments.prometheus, prometheus.text(summaries, arguments.strict))]
        )
    return code


def _write_metrics(path: str, text: str) -> int:
    try:
        with prometheus.replaced(path, 0o644) as file:
            file.write(text)
    except OSError as error:
        complain(path, f"could not write the metrics: {error.strerror}")
        return exitcodes.COULD_NOT_LOOK
    return exitcodes.GOOD
