"""Builds the pages of the repository as a site (mdBook), and checks every link of the site.

The pages keep their places in the repository, so that they read the same there. `docs/SUMMARY.md` lists them. Files that a
page links are copied, a folder that it links becomes a list of its files. It must not know what a page says.

    python3 scripts/build_docs.py --mdbook target/tools/bin/mdbook --out target/site
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = PurePosixPath("docs/SUMMARY.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"""(?:src|srcset)="([^"]+)\"""")
"""A picture that a page names in HTML."""
BOOK = """[book]
title = "Waykeeper"
language = "en"
src = "pages"

[build]
build-dir = "{out}"
create-missing = false
# `README.md` stays `README.html`: links name it.
use-default-preprocessors = false

[output.html]
no-section-label = true
smart-punctuation = false
"""


class Mistake(Exception):
    """A page, a link or a tool that is not as it must be; the message is one line."""


def tracked(pattern: str) -> list[PurePosixPath]:
    """The repository's files of a pattern, also new ones that git does not ignore."""
    words = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        pattern,
    ]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(PurePosixPath(name) for name in listed.split("\0") if name and (ROOT / name).is_file())


def targets(page: PurePosixPath) -> list[PurePosixPath]:
    """What a page links within the repository, as paths from its root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    # Neither code blocks nor code within a line have links.
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    found = []
    for link in [*LINK.findall(text), *SOURCE.findall(text)]:
        parts = urlsplit(link)
        if parts.scheme or not parts.path:
            continue
        found.append(PurePosixPath(os.path.normpath(page.parent / unquote(parts.path))))
    return found


def stage(pages: Path) -> None:
    """Copies the listed pages and what they link into `pages`."""
    listed = [page for page in targets(SUMMARY) if page.suffix == ".md"]
    missing = sorted({page for page in tracked("docs/*.md") if page != SUMMARY} - set(listed))
    if missing:
        raise Mistake(f"{SUMMARY} does not list {', '.join(map(str, missing))}")
    summary = (ROOT / SUMMARY).read_text(encoding="utf-8")
    moved = LINK.sub(lambda link: f"]({os.path.normpath(SUMMARY.parent / link[1])})", summary)
    pages.mkdir(parents=True)
    (pages / "SUMMARY.md").write_text(moved, encoding="utf-8")
    for page in listed:
        copy(page, pages)
        for target in targets(page):
            if (ROOT / target).is_dir():
                list_folder(target, pages)
            elif target.suffix == ".md" and target not in listed:
                raise Mistake(f"{page} links {target}, which {SUMMARY} does not list")
            elif target not in listed:
                copy(target, pages)


def copy(name: PurePosixPath, pages: Path) -> None:
    """Copies a file of the repository."""
    source = ROOT / name
    if not source.is_file():
        raise Mistake(f"{name} is linked and does not exist")
    (pages / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, pages / name)


def list_folder(folder: PurePosixPath, pages: Path) -> None:
    """Copies a folder's files, without those of folders within it, and writes a page that lists them."""
    files = [name for name in tracked(f"{folder}/*") if name.parent == folder and name.suffix != ".md"]
    for name in files:
        copy(name, pages)
    items = "\n".join(f'<li><a href="{name.name}">{html.escape(name.name)}</a></li>' for name in files)
    (pages / folder).mkdir(parents=True, exist_ok=True)
    (pages / folder / "index.html").write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{folder}</title><h1>{folder}</h1><ul>{items}</ul></html>\n",
        encoding="utf-8",
    )


class Anchors(HTMLParser):
    """The links and the names of a page of the site."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what an element links or names."""
        for key, value in attrs:
            if value and key == "id":
                self.names.add(value)
            elif value and (tag, key) in (("a", "href"), ("img", "src")):
                self.links.append(value)


def broken(site: Path) -> tuple[int, list[str]]:
    """The number of links within the site, and those without a target."""
    read: dict[Path, Anchors] = {}
    for page in site.rglob("*.html"):
        read[page] = Anchors()
        read[page].feed(page.read_text(encoding="utf-8"))
    count, bad = 0, []
    for page, anchors in read.items():
        # The page for a wrong address and the one to print repeat the links of others from another place.
        if page.name in ("404.html", "print.html", "toc.html"):
            continue
        for link in anchors.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = page if not parts.path else Path(os.path.normpath(page.parent / unquote(parts.path)))
            if target.is_dir():
                target /= "index.html"
            named = not parts.fragment or target not in read or unquote(parts.fragment) in read[target].names
            if not target.is_file() or not named:
                bad.append(f"{page.relative_to(site)}: {link}")
    return count, bad


def build(mdbook: str, out: Path) -> int:
    """Builds the site; the number of its links, all of which lead somewhere."""
    work = out.with_name(f"{out.name}.work")
    for folder in (work, out):
        shutil.rmtree(folder, ignore_errors=True)
    stage(work / "pages")
    (work / "book.toml").write_text(BOOK.format(out=out), encoding="utf-8")
    try:
        subprocess.run(
            [mdbook, "build", str(work)], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "RUST_LOG": "warn"}
        )
    except FileNotFoundError:
        raise Mistake(f"{mdbook} is not there; `make docs` installs it") from None
    except subprocess.CalledProcessError as failed:
        raise Mistake(f"mdbook ended with status {failed.returncode}") from None
    shutil.rmtree(work)
    count, bad = broken(out)
    if bad:
        raise Mistake(f"{len(bad)} of {count} links lead nowhere: {'; '.join(bad)}")
    return count


def main() -> int:
    """Builds the site; exit status 1 for a page or link that is wrong."""
    parser = argparse.ArgumentParser(description="Build the pages as a site and check its links.")
    parser.add_argument("--mdbook", default="mdbook", help="the program [mdbook]")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "target/site",
        help="folder of the site [target/site]",
    )
    options = parser.parse_args()
    try:
        count = build(options.mdbook, options.out.resolve())
    except Mistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 1
    print(f"{options.out}/index.html: {count} links, all of which lead somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
