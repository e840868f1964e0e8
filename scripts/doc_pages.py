"""The pages of the documentation: their links, their anchors, and the table of contents in docs/SUMMARY.md.

scripts/check-links checks them as they stand in the repository; scripts/docs builds the book from them. Nothing here writes.
"""

import posixpath
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "docs/SUMMARY.md"

FENCE = re.compile(r"^ {0,3}(?:[-*] )?\s*(```+|~~~+).*?^\s*\1[`~]*\s*$", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
# Both ways to write a target: `[text](target "title")` and `[label]: target`.
LINK = re.compile(r"\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^\]]+\]:\s+(\S+)", re.M)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", re.M)
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")


def tracked():
    """Every file of the repository, also one that is new and not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def directories(files):
    """Every directory that holds one of the files."""
    found = {"."}
    for name in files:
        while name := posixpath.dirname(name):
            found.add(name)
    return found


def blanked(text, pattern):
    """The text with every match replaced by as many spaces, so that offsets and lines stay."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def prose(text):
    """A page without its code."""
    return blanked(blanked(text, FENCE), CODE)


def links(text):
    """Each link that stays in the repository: where its target begins, the target, and the line."""
    plain = prose(text)
    for match in LINK.finditer(plain):
        group = 1 if match[1] is not None else 2
        if not SCHEME.match(match[group]) and not match[group].startswith("//"):
            yield match.start(group), match[group], plain.count("\n", 0, match.start()) + 1


def resolved(page, target):
    """The file or directory that a link of a page is about, and its anchor."""
    path, _, anchor = target.partition("#")
    if not path:
        return page, anchor
    joined = posixpath.join(posixpath.dirname(page), unquote(path))
    return posixpath.normpath(joined), anchor


def anchors(text):
    """The anchors of a page, as forges and mdBook make them of its headings."""
    found, plain = set(), blanked(text, FENCE)
    for match in HEADING.finditer(plain):
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.strip().lower()))
        name, number = slug, 0
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", plain))


def contents(text):
    """The pages that docs/SUMMARY.md names, in its order."""
    return [resolved(SUMMARY, target)[0] for _, target, _ in links(text)]
