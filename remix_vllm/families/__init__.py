"""The model families that are served. Importing this imports neither torch nor vLLM."""

from collections.abc import Iterable

from remix_vllm.families.family import Family
from remix_vllm.families.llada import LLADA
from remix_vllm.families.sdar import SDAR

FAMILIES: tuple[Family, ...] = (LLADA, SDAR)

SERVED_ARCHITECTURES: tuple[str, ...] = tuple(
    architecture for family in FAMILIES for architecture in family.architectures
)


def is_served(architectures: Iterable[str]) -> bool:
    """True if one of ``architectures`` belongs to a served family."""
    return any(architecture in SERVED_ARCHITECTURES for architecture in architectures)


def family_of(architectures: Iterable[str]) -> Family:
    """The family of the first served architecture.

    Raises:
        ValueError: none is served; the text lists those that are.
    """
    declared = list(architectures)
    for architecture in declared:
        for family in FAMILIES:
            if architecture in family.architectures:
                return family
    raise ValueError(
        f"architectures={declared}: not a masked diffusion model that ReMix decoding serves; "
        f"served are {', '.join(SERVED_ARCHITECTURES)}"
    )
