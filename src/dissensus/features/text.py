"""Texts as vectors, by a pretrained encoder with its own tokenizer, and words as vectors, by its input embeddings.

A text's vector is the mean of the last layer over its tokens, or the state of its first one ([CLS]), of length 1 where
the model's own folder says so (sentence-transformers' `modules.json`): sentence-transformers' vectors to 1e-5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._types import FloatArray
from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.features import hub
from dissensus.features.extra import need
from dissensus.names import shown


@dataclass(frozen=True, eq=False)
class TextModel:
    """A pretrained text encoder as plain values, all but its weights, which are read when they are needed."""

    config: dict[str, Any]
    tokenizer: str  # in the JSON of the `tokenizers` library
    max_length: int  # tokens that the model can take, special ones included
    normalize: bool  # whether its vectors have length 1
    identity: str
    weights: Path | dict[str, Any] = field(repr=False)  # a folder, or arrays by name

    def network(self) -> Any:
        """The pretrained nn.Module, one of its own for every call."""
        if isinstance(self.weights, Path):
            return hub.load(self.weights)
        torch, network = need("torch"), hub.build(self.config)
        network.load_state_dict({name: torch.as_tensor(array) for name, array in self.weights.items()})
        return network.eval()


def text_model(model: str | Path | None = None) -> TextModel:
    """The text encoder in a folder, in the hub's cache under a name, or (None) the bundled MiniLM."""
    folder = hub.folder_of(model)
    return _read(folder, hub.identity(folder))


@lru_cache(maxsize=4)
def _read(folder: Path, identity: str) -> TextModel:
    config = hub.read_config(folder)
    if config.get("is_encoder_decoder"):
        raise BadParameter(f"{folder} is a {config['model_type']}, which writes texts; name a model that reads them.")
    with hub.reading(folder):
        tokenizer = need("transformers").AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if not tokenizer.is_fast:
        raise UnreadableFile(f"{folder} has no tokenizer.json; save one with its tokenizer's `save_pretrained`.")
    inner = tokenizer.backend_tokenizer
    inner.no_padding()
    inner.no_truncation()
    sentence = _json(folder / "sentence_bert_config.json", {})
    longest = tokenizer.model_max_length  # 1e30 where it knows of no limit
    if longest > config.get("max_position_embeddings", 512):
        longest = config.get("max_position_embeddings", 514) - 2  # two of RoBERTa's positions are no token's
    return TextModel(
        config=config,
        tokenizer=inner.to_str(),
        max_length=sentence.get("max_seq_length") or longest,
        normalize=any(part["type"].endswith("Normalize") for part in _json(folder / "modules.json", [])),
        identity=identity,
        weights=folder,
    )


def _json(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else otherwise


@lru_cache(maxsize=4)
def tokenizer_of(source: str) -> Any:
    """The tokenizer of its JSON; parsing one costs 50 ms."""
    return need("tokenizers").Tokenizer.from_str(source)


@lru_cache(maxsize=1)
def network_of(model: TextModel) -> Any:
    """The pretrained network for looking up only: the last one is kept, since reading one takes a second."""
    return model.network().requires_grad_(False)


def word_vectors(words: Sequence[str], model: str | Path | None = None) -> FloatArray:
    """Vectors of single words: the model's own input embeddings, averaged over the pieces of a word.

    Parameters
    ----------
    words : sequence of str
    model : str or Path, optional
        A Hugging Face folder or name; None for the bundled MiniLM.

    Returns
    -------
    (W, D) float32 array
        A word without pieces, such as "", is all zeros.
    """
    source = text_model(model)
    tokenizer = tokenizer_of(source.tokenizer)
    tokenizer.no_truncation()
    pieces = [found.ids for found in tokenizer.encode_batch(checked(words), add_special_tokens=False)]
    table = network_of(source).get_input_embeddings().weight.numpy()  # (V, D)
    sums = np.zeros((len(pieces), table.shape[1]), np.float32)
    counts = np.array([len(ids) for ids in pieces], np.int64)
    np.add.at(sums, np.repeat(np.arange(len(pieces)), counts), table[np.fromiter(chain(*pieces), np.int64)])
    return sums / np.maximum(counts, 1)[:, None].astype(np.float32)


def checked(texts: Sequence[str]) -> list[str]:
    """The texts as a list; DataError for the first that is none."""
    if isinstance(texts, str):
        raise DataError("texts is one string; give one per item, in a list.")
    values = list(texts)
    for row, text in enumerate(values):
        if not isinstance(text, str):
            raise DataError(f"texts: row {row} is {shown(text)}, not a text; give one string per item ('' for none).")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"texts: row {row} holds half a character at place {error.start}; repair it.") from None
    return values
