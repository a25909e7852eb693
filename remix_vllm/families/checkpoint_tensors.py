"""A check of the tensors of a checkpoint against those that its config implies."""

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor


class CheckpointTensors:
    """Watches the tensors of a checkpoint go by; tells which are missing, unknown or misshapen.

    vLLM's loader ignores unknown biases, does not miss what never came and cuts larger projections
    to size; a model served with any of these would answer, wrongly.

    Args:
        shapes: all layers with a tensor in the checkpoint, and the shapes of their weights.
        quantized: True lets a layer have tensors of other kinds and shapes.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], quantized: bool) -> None:
        self._shapes = shapes
        self._missing = set(shapes)
        self._quantized = quantized
        self._unexpected: list[str] = []
        self._misshapen: list[str] = []

    def watch(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass on the tensors that fit the model."""
        for name, tensor in weights:
            layer, _, kind = name.rpartition(".")
            # A quantized layer has other tensors (scales, packed weights): its method knows them.
            if layer not in self._shapes or not (kind == "weight" or self._quantized):
                self._unexpected.append(name)
                continue
            self._missing.discard(layer)
            if not self._quantized and tuple(tensor.shape) != self._shapes[layer]:
                wanted = list(self._shapes[layer])
                self._misshapen.append(f"{name} is {list(tensor.shape)}, not {wanted}")
                continue
            yield name, tensor

    def check(self) -> None:
        """
        Raises:
            ValueError: tensors were missing, unknown or misshapen; the text names them.
        """
        complaints = {
            "missing": [f"{layer}.weight" for layer in self._missing],
            "unexpected": self._unexpected,
            "wrong shape": self._misshapen,
        }
        found = "; ".join(
            f"{what}: {_listed(names)}" for what, names in complaints.items() if names
        )
        if found:
            raise ValueError(f"the checkpoint's tensors are not those of its config: {found}")


def _listed(names: Iterable[str], limit: int = 20) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more
