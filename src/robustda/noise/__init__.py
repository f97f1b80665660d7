"""What is wrong with the data: corrupting it on purpose, with a record of what was done."""

from __future__ import annotations

from robustda.noise.corrupt import (
    BlurSaltPepper,
    Corruption,
    NoiseRecord,
    check_transition,
    corrupt,
    corrupt_image,
    corrupt_labels,
    corrupt_vectors,
    transition_matrix,
)
from robustda.noise.folders import corrupt_folder, restore_folder

__all__ = [
    "BlurSaltPepper",
    "Corruption",
    "NoiseRecord",
    "check_transition",
    "corrupt",
    "corrupt_folder",
    "corrupt_image",
    "corrupt_labels",
    "corrupt_vectors",
    "restore_folder",
    "transition_matrix",
]
