"""Prints what the Python package's tests need from PyPI, one requirement a line, from python/pyproject.toml.

The wheel is built while pip fetches these. It must run with the Python of a bare environment: before 3.11 there is no
tomllib, and the copy that pip itself carries reads the file.
"""

try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib

from pathlib import Path


def requirements(project: dict, extra: str) -> list[str]:
    """The package's requirements with those of one extra; an extra that names others of the package is spread."""
    found = list(project["dependencies"])
    for line in project["optional-dependencies"][extra]:
        if line.startswith(f"{project['name']}["):
            for name in line[len(project["name"]) + 1 : line.index("]")].split(","):
                found += project["optional-dependencies"][name]
        else:
            found.append(line)
    return found


if __name__ == "__main__":
    text = (Path(__file__).resolve().parent.parent / "python/pyproject.toml").read_text(encoding="utf-8")
    manifest = tomllib.loads(text)
    print(*requirements(manifest["project"], "test"), *manifest["build-system"]["requires"], sep="\n")
