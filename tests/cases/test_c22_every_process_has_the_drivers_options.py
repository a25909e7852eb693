"""C22: options travel in the configuration, and a process that has others does not start."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import remix_vllm
from remix_vllm.engine import fingerprint as fingerprints
from remix_vllm.engine.fingerprint import KEY, check_fingerprint, fingerprint
from tests.upstream.configs import llama, make_config

REMIX = {"threshold": 0.7, "block_length": 16}


@pytest.fixture
def travelled(shipped_model: Path) -> Any:
    """A configuration as a worker gets it."""
    config = make_config(shipped_model, additional_config={"remix": REMIX})
    return pickle.loads(pickle.dumps(config))


def test_a_worker_finds_what_the_driver_wrote(travelled: Any) -> None:
    assert travelled.additional_config["remix"] == REMIX
    assert travelled.additional_config[KEY] == fingerprint(travelled)
    check_fingerprint(travelled)


def test_the_fingerprint_is_of_the_resolved_options(shipped_model: Path) -> None:
    def of(remix: dict[str, Any] | None) -> str:
        additional = {} if remix is None else {"additional_config": {"remix": remix}}
        return make_config(shipped_model, **additional).additional_config[KEY]["options"]

    assert of(None) == of({})
    assert of(None) != of({"threshold": 0.9})


def test_the_callers_mapping_is_left_alone(shipped_model: Path) -> None:
    given = {"remix": dict(REMIX)}
    make_config(shipped_model, additional_config=given)
    assert given == {"remix": REMIX}


def test_other_models_carry_no_fingerprint(tmp_path: Path) -> None:
    assert KEY not in make_config(llama(tmp_path)).additional_config


def test_other_options_stop_the_worker(travelled: Any) -> None:
    """A setting that reaches a worker by another way than the configuration, by its environment for
    one, can differ there without a word."""
    travelled.additional_config["remix"] = REMIX | {"threshold": 0.8}
    with pytest.raises(RuntimeError, match=r"on host \S+ is not that of the engine: options \w+"):
        check_fingerprint(travelled)


def test_another_version_stops_the_worker_and_both_are_named(
    travelled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = remix_vllm.__version__
    monkeypatch.setattr(remix_vllm, "__version__", "9.9.9")
    monkeypatch.setattr(fingerprints, "vllm_version", lambda: "0.32.9")
    with pytest.raises(RuntimeError) as error:
        check_fingerprint(travelled)
    assert f"remix_vllm {there} there, 9.9.9 here" in str(error.value)
    assert "vllm 0.32.0" in str(error.value)
    assert "0.32.9 here" in str(error.value)
    assert "code" not in str(error.value)


def test_a_driver_without_a_fingerprint_is_another_version(travelled: Any) -> None:
    del travelled.additional_config[KEY]
    with pytest.raises(RuntimeError, match=r"remix_vllm unknown there"):
        check_fingerprint(travelled)
