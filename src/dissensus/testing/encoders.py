"""Conformance suite for encoders: `check_encoder` raises AssertionError if one breaks the contract."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.learning import CrowdClassifier
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.inputs import count_rows, take_rows
from dissensus.learning.run import copy_component
from dissensus.learning.storage import pack_component, read_tree, unpack_component, write_tree
from dissensus.table.annotations import Annotations

VECTOR_TOLERANCE = 1e-4  # maximum rounding error of float32 values around 1


def check_encoder(encoder: Encoder, X: Any) -> None:
    """Check an encoder and its keywords on inputs X, which must have at least four rows that are not all equal."""
    entry = encoders.entry(encoders.get_name(type(encoder)))
    assert entry.summary, "the registered summary is empty"
    assert isinstance(encoder.input_kind, str), "`input_kind` must name the kind of X"
    before = pickle.dumps(X)
    fitted: Encoder = copy_component(encoder, encoders, Encoder)
    assert fitted.fit(X) is fitted, "fit must return the encoder"
    columns, n = fitted.prepare(X), count_rows(X)
    assert pickle.dumps(X) == before, "fit and prepare must not change X"
    assert isinstance(columns, BatchColumns), "prepare must return BatchColumns"
    assert len(columns) == n, "prepare must return one entry per row"
    assert len(fitted.prepare(take_rows(X, np.arange(0)))) == 0, "prepare must accept inputs without rows"
    module = fitted.module()
    z = _encode(module, columns, np.arange(n))
    _check_rows(fitted, module, X, columns, z)
    _check_branch(fitted, z)
    _check_storage(fitted, module, X, z)
    _check_training(encoder, X)
    assert all(isinstance(member, Encoder) for member in encoder.make_pool_encoders()), (
        "make_pool_encoders must return encoders"
    )


def _encode(module: nn.Module, columns: BatchColumns, items: Any) -> Tensor:
    with torch.no_grad():
        out: Tensor = module.eval()(**columns.take(torch.as_tensor(items)))
    return out


def _check_rows(fitted: Encoder, module: nn.Module, X: Any, columns: BatchColumns, z: Tensor) -> None:
    n = len(columns)
    assert z.shape[0] == n, "forward must return one row per item"
    assert bool(torch.isfinite(z).all()), "vectors must be finite"
    order = np.arange(n)[::-1].copy()
    reordered = _encode(module, columns, order)
    assert torch.allclose(reordered, z[order], atol=VECTOR_TOLERANCE), (
        "an item's vector depends on its position in the batch"
    )
    for item in (0, n - 1):
        alone = _encode(module, fitted.prepare(take_rows(X, np.array([item]))), [0])
        assert torch.allclose(alone[0], z[item], atol=VECTOR_TOLERANCE), (
            "an item's vector depends on the other rows of X"
        )


def _check_branch(fitted: Encoder, z: Tensor) -> None:
    out = fitted.branch().eval()(z)
    assert out.shape == (len(z), fitted.width), f"a branch must return (B, width), got {tuple(out.shape)}"


def _check_storage(fitted: Encoder, module: nn.Module, X: Any, z: Tensor) -> None:
    """Check that `prepare` and `module` need only the attributes that end in an underscore."""
    with TemporaryDirectory() as folder:
        path = write_tree(Path(folder) / "encoder", pack_component(fitted, encoders), "encoder")
        loaded = unpack_component(read_tree(path, "encoder"), encoders)
    again = loaded.module()
    again.load_state_dict(module.state_dict())
    assert torch.equal(_encode(again, loaded.prepare(X), np.arange(len(z))), z), (
        "a loaded encoder returns different vectors"
    )


def _check_training(encoder: Encoder, X: Any) -> None:
    n = count_rows(X)
    table = Annotations.from_arrays(np.repeat(np.arange(n), 2), np.tile([0, 1], n), np.arange(2 * n) // 2 % 2)
    model = CrowdClassifier(encoder=encoder, objective="soft", epochs=1, batch_size=4, device="cpu").fit(table, X)
    proba = model.predict_proba(X)
    assert np.allclose(proba.sum(axis=1), 1), "predict_proba must return distributions"
    with TemporaryDirectory() as folder:
        model.save(folder)
        loaded = CrowdClassifier.load(folder, device="cpu")
    assert np.array_equal(loaded.predict_proba(X), proba), "a loaded classifier returns different predictions"
