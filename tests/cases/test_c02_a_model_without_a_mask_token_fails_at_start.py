"""C02: what the decoder needs and the checkpoint lacks is named at start-up."""

from pathlib import Path

import pytest

from tests.models.checkpoints import tiny_tokenizer, write_llada
from tests.models.engines import EngineSpec, start_engine


def test_no_mask_id_in_config_or_tokenizer(tmp_path: Path) -> None:
    """https://github.com/inclusionAI/dInfer/issues/39: the first step failed instead.

    Also https://github.com/JetAstra/SDAR/issues/37.
    """
    model = write_llada(tmp_path, mask_token_id=None)
    tiny_tokenizer(mask_token=None).save_pretrained(model)
    with pytest.raises(ValueError, match=r"mask_token_id: LLaDA needs a mask token.*config\.json"):
        start_engine(EngineSpec.of(model, {}))
