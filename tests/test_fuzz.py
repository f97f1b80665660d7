"""Loaders read or refuse whatever they are fed. `make fuzz` does the same a million times."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import LOADERS, attempt, changed, seeds

EACH = 300  # damaged files for each loader

loaders = pytest.mark.parametrize("loader", LOADERS)


@loaders
def test_the_corpus_itself_is_read(loader, tmp_path):
    outcomes = [attempt(loader, content, tmp_path) for content in seeds(loader)]
    assert "read" in outcomes


@loaders
def test_damaged_files_are_read_or_refused(loader, tmp_path):
    rng = random.Random(11)
    files = seeds(loader)
    outcomes = set()
    for _ in range(EACH):
        outcomes.add(attempt(loader, changed(rng.choice(files), rng.choice(files), rng), tmp_path))
    assert outcomes <= {"read", "refused"}
    assert loader == "cache" or "refused" in outcomes


@loaders
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_bytes_are_read_or_refused(loader, data, tmp_path_factory):
    """Bytes as they come, or a file of the corpus with a stretch of it replaced."""
    place = tmp_path_factory.mktemp("fed")
    content = data.draw(st.binary(max_size=300))
    if data.draw(st.booleans()):
        whole = data.draw(st.sampled_from(seeds(loader)))
        at = data.draw(st.integers(0, len(whole)))
        content = whole[:at] + content + whole[at + data.draw(st.integers(0, 40)) :]
    assert attempt(loader, content, place) in ("read", "refused")
