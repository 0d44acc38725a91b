"""Pretrained transformer over texts, or texts and targets (Uma et al. 2021) as `[CLS] text [SEP] target [SEP]`.

    h = network(tokens)  (B, L, H)        z = h at [CLS], or the mean of h over the tokens  (B, H)

If the encoder is fine-tuned, the network is the module and all its weights are trained. If the encoder is frozen, texts
are embedded once, with a cache on disk, and only the objective's layers are trained. The norm of z is then √H, so that
its entries are of order one for every model.

A fitted encoder stores the network's configuration and the tokenizer as plain values. A saved model does not need the
pretrained weights, because fine-tuned weights belong to the module, and frozen weights are saved with it, except those
of the bundled model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray
from dissensus.features import hub
from dissensus.features.cache import Cache
from dissensus.features.text import (
    Pooling,
    TextModel,
    check_length,
    embed_texts,
    hidden_states,
    pool_states,
    read_text_model,
    tokenize_texts,
)
from dissensus.learning import inputs as input_data
from dissensus.learning.batches import BatchColumns, PaddedSequences
from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.exceptions import TextModelDiffers, WrongInputRow

TEXTS_AT_ONCE = 64  # maximum number of texts of similar length that are predicted at once
TOKENIZED_AT_ONCE = 8192  # maximum number of texts whose tokens are in memory at once


@encoders.register("transformer", summary="a pretrained Hugging Face encoder of texts", cite="Devlin et al. 2019")
class Transformer(Encoder):
    """Pretrained encoder of texts, or of pairs of a text and a target."""

    input_kind = "texts, or pairs of a text and a target"

    model: str | Path | None = param(
        None,
        "folder or name of a Hugging Face model, which is not downloaded; None: the MiniLM of the `text` extra",
    )
    tune: bool = param(True, "fine-tune all weights; False: frozen weights")
    pooling: Pooling = param(
        "mean", "vector of a text: the mean over its tokens, or the state of the first token ('cls')"
    )
    max_length: int | None = param(
        None, "maximum number of tokens of a text (in a pair, the longer text is cut first); None: the model's maximum"
    )
    cache: Cache = param(True, "cache for vectors of frozen models; see `dissensus.features.embed_texts`")

    config_: dict[str, Any]
    tokenizer_: str
    max_length_: int
    normalize_: bool
    identity_: str
    pairs_: bool
    weights_: dict[str, FloatArray] | None  # weights of a frozen model other than the bundled one

    def __init__(self, model: str | Path | None = None, **keywords: Any):
        super().__init__(model=model, **keywords)

    @property
    def learning_rate(self) -> float:  # type: ignore[override]  # The rate depends on a keyword.
        """Default learning rate, which is smaller if pretrained weights are trained than if they are frozen."""
        return 5e-5 if self.tune else 1e-3

    def make_pool_encoders(self) -> list[Encoder]:
        return [] if self.tune else [self]

    def fit(self, X: Any) -> Self:
        """Read the model, and determine from the first input whether inputs are texts or pairs."""
        super().fit(X)
        source = read_text_model(self.model)
        self.max_length_ = check_length(source, self.max_length)
        self.config_, self.tokenizer_ = source.config, source.tokenizer
        self.normalize_, self.identity_ = source.normalize, source.identity
        self.pairs_ = input_data.count_rows(X) > 0 and not isinstance(input_data.take_rows(X, [0])[0], str)
        self.weights_ = None
        if not self.tune and self.model is not None:
            self.weights_ = {name: value.numpy() for name, value in source.network().state_dict().items()}
        self._pretrained = source  # The source is not saved, because the weights belong to the module.
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return the columns `ids` and, for pairs, `types`; for a frozen model, return one column, `x`."""
        first, second = self._read_texts(X)
        if not self.tune:
            x = embed_texts(
                first,
                self._load_frozen_model(),
                pair=second,
                pooling=self.pooling,
                max_length=self.max_length_,
                cache=self.cache,
            )
            length = np.linalg.norm(x, axis=1, keepdims=True)
            return BatchColumns(
                x=torch.from_numpy(x / np.where(length > 0, length, 1) * np.float32(np.sqrt(self.width)))
            )
        values: list[Any] = [np.zeros((2, 0), np.int64)]
        lengths = [0]
        for start in range(0, len(first), TOKENIZED_AT_ONCE):
            part = slice(start, start + TOKENIZED_AT_ONCE)
            found = tokenize_texts(
                self._make_text_model({}), first[part], None if second is None else second[part], self.max_length_
            )
            values += [np.array(text) for text in found]  # (2, L) each
            lengths += [len(ids) for ids, _ in found]
        ids, types = torch.from_numpy(np.concatenate(values, axis=1).astype(np.int32)).unbind()
        ptr = torch.from_numpy(np.cumsum(lengths))
        columns = {"ids": PaddedSequences({"id": ids.clone()}, ptr, pad=-1)}
        if self.pairs_:
            columns["types"] = PaddedSequences({"type": types.clone()}, ptr)
        return BatchColumns(**columns)

    def module(self) -> nn.Module:
        """Return the network, which has pretrained weights after `fit`, and random weights after loading."""
        if not self.tune:
            return MLPModule(self.width)
        fresh = getattr(self, "_pretrained", None)
        return TransformerModule(hub.build_network(self.config_) if fresh is None else fresh.network(), self.pooling)

    @property
    def width(self) -> int:
        return int(self.config_.get("hidden_size") or self.config_["dim"])  # The name in DistilBERT is dim.

    def _read_texts(self, X: Any) -> tuple[list[str], list[str] | None]:
        if not self.pairs_:
            return input_data.to_texts(X), None
        pairs = input_data.to_pairs(X, "texts")
        for row, pair in enumerate(pairs):
            if not all(isinstance(text, str) for text in pair):
                raise WrongInputRow(row=row, value=repr(pair), expected="a pair of texts")
        return [a for a, _ in pairs], [b for _, b in pairs]

    def _make_text_model(self, weights: Path | dict[str, Any]) -> TextModel:
        return TextModel(self.config_, self.tokenizer_, self.max_length_, self.normalize_, self.identity_, weights)

    def _load_frozen_model(self) -> TextModel:
        if self.weights_ is not None:
            return self._make_text_model(self.weights_)
        folder = hub.find_model_folder(None)
        if hub.hash_model_files(folder) != self.identity_:
            raise TextModelDiffers(package=hub.BUNDLED_MODEL)
        return self._make_text_model(folder)


class TransformerModule(nn.Module):
    """Network of a fine-tuned `Transformer`, which maps token ids (B, L), −1 after the end of a text, to (B, H)."""

    def __init__(self, network: nn.Module, pooling: Pooling = "mean"):
        super().__init__()
        self.network, self.pooling = network, pooling

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Any:
        """Return one vector per text; `types` is the number of each token's text in a pair."""
        if self.training or len(ids) <= TEXTS_AT_ONCE:
            return self._pool_tokens(ids, types)
        # Texts of similar length are predicted together, which takes less padding and memory.
        lengths = (ids >= 0).sum(1)
        order = lengths.argsort(descending=True, stable=True)
        parts = []
        for rows in torch.split(order, TEXTS_AT_ONCE):
            longest = int(lengths[rows[0]])
            parts.append(self._pool_tokens(ids[rows, :longest], None if types is None else types[rows, :longest]))
        return torch.cat(parts)[order.argsort()]

    def _pool_tokens(self, ids: Tensor, types: Tensor | None) -> Any:
        hidden, inside = hidden_states(self.network, ids.long(), None if types is None else types.long())
        return pool_states(hidden, inside, self.pooling)
