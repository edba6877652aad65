"""bundle: put a whole directory into one file: evidence for later, a backup, or something to share."""

from __future__ import annotations

import argparse
import os

from .. import bundle, exitcodes
from ..exitcodes import UsageError
from ..findings import disk
from ..findings.summary import summary_of
from ..screens import phrases
from ..screens.documents import path_members, preamble, print_document, verify_document
from ..screens.report import verdict_of
from ..screens.screen import BAD, FAINT, FINE, screen

HELP = "put a whole directory into one file"
EXAMPLES = """\
  checkpoint-verify bundle /var/lib/agent/claims claims.tar
  checkpoint-verify bundle --redact /var/lib/agent/claims to-share.tar      without any data
  checkpoint-verify claims.tar                                              verify what is in it
  checkpoint-verify list claims.tar
  checkpoint-verify show -d claims.tar pod-7
  checkpoint-verify restore -d /var/lib/agent/claims claims.tar
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the directory to put into the file")
    parser.add_argument("output", metavar="FILE", help="the file to make; one that exists is not overwritten")
    parser.add_argument(
        "--redact",
        action="store_true",
        help="without data: only keys, kinds, versions, generations, times and verdicts",
    )


def run(arguments: argparse.Namespace) -> int:
    directory, output = arguments.directory, arguments.output
    os.close(disk.open_folder(directory))  # let the system say why it cannot be read
    within = os.path.realpath(directory)
    if os.path.commonpath((os.path.realpath(output), within)) == within:
        raise UsageError(f"{phrases.shown(output)} would be in the directory itself; write it elsewhere")
    summary = summary_of(directory, kubelet_version=arguments.kubelet_version)
    report = preamble("bundle", exitcodes.GOOD) | verify_document([summary], [], strict=False)
    if arguments.redact:
        for problem in report["problems"]:
            problem["subject"] = None
    content = bundle.write(output, directory, report, redact=arguments.redact)
    unread = [file for file in content.left_out if file["why"] != "redacted"]
    code = exitcodes.COULD_NOT_LOOK if unread else exitcodes.GOOD
    if arguments.json:
        members = path_members(output) | {"redacted": arguments.redact, "files": content.files}
        print_document("bundle", code, members | {"left_out": content.left_out})
        return code
    shown = screen()
    size = phrases.size(os.path.getsize(output))
    what = "BUNDLED, without data" if arguments.redact else "BUNDLED"
    shown.say((what, BAD if unread else FINE), f": {content} in {phrases.shown(output)} ({size})")
    shown.say((f"when it was made: {verdict_of([summary], strict=False)[0]}", FAINT), indent=2)
    for file in unread:
        shown.say(f"left out: {phrases.shown(file['name'])}: {file['why']}", indent=2)
    return code
