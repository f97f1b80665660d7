"""A software bill of materials: what a robustda that is installed by constraints.txt consists of, as CycloneDX JSON.

    python tools/sbom.py [--out dist/robustda-VERSION.cdx.json]

Names and versions are those of constraints.txt; licences, who needs whom, and needs that are not pinned come from the
metadata of the packages that are installed beside this Python. Nothing is asked over the network. `required` is what
robustda cannot do without, `optional` what an extra brings, `excluded` what only tests and linters need.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
NOT_SHIPPED = ("test", "interop", "lint", "docs")  # the extras that only those who work on robustda need


def main() -> int:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/robustda/_version.py").read_text())[1]  # type: ignore[index]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / f"robustda-{version}.cdx.json")
    out = parser.parse_args().out
    content, unknown = bill(version)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(content['components'])} components → {out}")
    if unknown:
        print(f"not installed here, so without licence and needs: {', '.join(unknown)}", file=sys.stderr)
    return 0


def bill(version: str) -> tuple[dict[str, Any], list[str]]:
    """The bill, and the pinned packages of which only name and version are known."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own, extras = project["dependencies"], project["optional-dependencies"]
    shipped = [line for name, lines in extras.items() if name not in NOT_SHIPPED for line in lines]
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    required, optional = closure(needs_of(own)), closure(needs_of(shipped))
    others = closure(needs_of(line for name in NOT_SHIPPED for line in extras[name]))
    graph = {name: {need for part in (required, optional, others) for need in part.get(name, ())} for name in pinned}
    graph |= {name: needs for part in (optional, required) for name, needs in part.items() if name not in pinned}
    parts, unknown = [], []
    for name in sorted(graph):
        found = installed(name)
        if found is None and name not in pinned:
            continue  # on another system, perhaps
        if found is not None and name in pinned and plain(found.version) != plain(pinned[name]):
            found = None
        scope = (
            "required" if name in required else "excluded" if name in others and name not in optional else "optional"
        )
        version_here = pinned.get(name) or plain(found.version)  # type: ignore[union-attr]
        loose = {"properties": [{"name": "robustda:pinned", "value": "false"}]}
        parts.append(component(name, version_here, scope, found) | ({} if name in pinned else loose))
        unknown += [name] if found is None else []
    refs = {part["name"]: part["bom-ref"] for part in parts}
    root = component("robustda", version, None, None) | {"licenses": [{"expression": project["license"]}]}
    direct = {name for name, _ in needs_of([*own, *shipped])}
    needs = [{"ref": root["bom-ref"], "dependsOn": sorted(refs[name] for name in direct if name in refs)}]
    for name, ref in refs.items():
        needs.append({"ref": ref, "dependsOn": sorted(refs[need] for need in graph[name] if need in refs)})
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([root, parts, needs], sort_keys=True))
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", datetime.now(UTC).timestamp())), UTC)
    about = {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": root}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | {"metadata": about, "components": parts, "dependencies": needs}, unknown


def component(name: str, version: str, scope: str | None, found: Distribution | None) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version}"
    about = {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}
    licences = licence(found) if found else []
    return about | ({"scope": scope} if scope else {}) | ({"licenses": licences} if licences else {})


def licence(found: Distribution) -> list[dict[str, Any]]:
    """The SPDX expression where there is one, else what the package calls its licence."""
    metadata = found.metadata
    if expression := _field(metadata, "License-Expression"):
        return [{"expression": expression}]
    said = _field(metadata, "License").strip()
    if said and len(said) < 80 and "\n" not in said and said != "UNKNOWN":
        return [{"license": {"name": said}}]
    kinds = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
    return [{"license": {"name": kind}} for kind in kinds]


def _field(metadata: PackageMetadata, name: str) -> str:
    return next(iter(metadata.get_all(name) or [""]))


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


Need = tuple[str, frozenset[str]]  # a package, and the extras that are asked of it


def needs_of(requirements: Iterable[str], extras: Iterable[str] = ()) -> set[Need]:
    """Who is needed here, by requirements with their markers."""
    found: set[Need] = set()
    for parsed in map(Requirement, requirements):
        if parsed.marker is None or any(parsed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.add((canonicalize_name(parsed.name), frozenset(parsed.extras)))
    return found


def closure(start: set[Need]) -> dict[str, set[str]]:
    """These packages and all that they need: the names, with whom each of them needs."""
    found: dict[str, set[str]] = {}
    seen, waiting = set[Need](), list(start)
    while waiting:
        need = waiting.pop()
        if need in seen:
            continue
        seen.add(need)
        name, extras = need
        there = installed(name)
        further = needs_of(there.requires or [], extras) if there else set()
        found.setdefault(name, set()).update(other for other, _ in further)
        waiting += further
    return found


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def plain(version: str) -> str:
    """Without the local part, such as +cpu."""
    return version.partition("+")[0]


if __name__ == "__main__":
    sys.exit(main())
