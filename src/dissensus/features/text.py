"""Embed texts with a pretrained encoder and its tokenizer, and words with its input embeddings.

The vector of a text is the mean of the last layer over its tokens, or the state of the first token ([CLS]). It is
normalised to length 1 if the model's `modules.json` says so. The vectors equal those of sentence-transformers up to
1e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.features import exceptions as faults
from dissensus.features import hub
from dissensus.features.cache import Cache, OnRows, embed_with_cache, hash_parts
from dissensus.features.hub import import_text_extra, torch_device
from dissensus.messages import quote_name

Pooling: TypeAlias = Literal["mean", "cls"]


@dataclass(frozen=True)
class TextModel:
    """A pretrained text encoder as plain values, except for its weights, which are read on demand."""

    config: dict[str, Any] = field(compare=False)
    tokenizer: str = field(compare=False)  # JSON of the `tokenizers` library
    max_length: int = field(compare=False)  # maximum number of tokens, including special tokens
    normalize: bool = field(compare=False)  # True if vectors are normalised to length 1
    identity: str
    weights: Path | dict[str, Any] = field(repr=False, compare=False)  # a folder, or name → array

    def network(self) -> Any:
        """Return the pretrained nn.Module; every call returns a new module."""
        if isinstance(self.weights, Path):
            return hub.load_pretrained(self.weights)
        torch, network = import_text_extra("torch"), hub.build_network(self.config)
        network.load_state_dict({name: torch.as_tensor(array) for name, array in self.weights.items()})
        return network.eval()


def read_text_model(model: str | Path | None = None) -> TextModel:
    """Read a text encoder from a folder or, by its name, from the hub's cache; None is the bundled MiniLM."""
    folder = hub.find_model_folder(model)
    return _read_cached_model(folder, hub.hash_model_files(folder))


@lru_cache(maxsize=4)
def _read_cached_model(folder: Path, identity: str) -> TextModel:
    config = hub.read_config(folder)
    if config.get("is_encoder_decoder"):
        raise faults.GenerativeModel(folder=folder, kind=config["model_type"])
    with hub.quiet_transformers(folder):
        tokenizer = import_text_extra("transformers").AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if not tokenizer.is_fast:
        raise faults.ModelWithoutTokenizer(folder=folder)
    inner = tokenizer.backend_tokenizer
    inner.no_padding()
    inner.no_truncation()
    sentence = hub.read_json(folder / "sentence_bert_config.json", {})
    longest = tokenizer.model_max_length  # This is 1e30 if the tokenizer has no limit.
    if longest > config.get("max_position_embeddings", 512):
        longest = config.get("max_position_embeddings", 514) - 2  # RoBERTa reserves two positions.
    return TextModel(
        config=config,
        tokenizer=inner.to_str(),
        max_length=sentence.get("max_seq_length") or longest,
        normalize=any(part["type"].endswith("Normalize") for part in hub.read_json(folder / "modules.json", [])),
        identity=identity,
        weights=folder,
    )


@lru_cache(maxsize=4)
def make_tokenizer(source: str, max_length: int | None = None) -> Any:
    """Make a tokenizer from its JSON, which truncates at `max_length`; it is cached, because parsing takes 50 ms."""
    tokenizer = import_text_extra("tokenizers").Tokenizer.from_str(source)
    if max_length is not None:
        tokenizer.enable_truncation(max_length)  # The longer text of a pair is truncated first.
    return tokenizer


def tokenize_texts(
    model: TextModel, texts: Sequence[str], pair: Sequence[str] | None = None, max_length: int | None = None
) -> list[tuple[list[int], list[int]]]:
    """Return the token ids and type ids of every text, or of each text and its pair (`[CLS] text [SEP] pair [SEP]`).

    A text without any tokens, not even special tokens, becomes one padding token.
    """
    tokenizer = make_tokenizer(model.tokenizer, max_length or model.max_length)
    found = tokenizer.encode_batch_fast(list(texts) if pair is None else list(zip(texts, pair, strict=True)))
    return [(text.ids, text.type_ids) if text.ids else ([model.config.get("pad_token_id") or 0], [0]) for text in found]


def hidden_states(network: Any, ids: Any, types: Any = None) -> tuple[Any, Any]:
    """Return the last layer (B, L, H) and the mask of tokens (B, L); `ids` (B, L) is −1 for padding."""
    torch, inside = import_text_extra("torch"), ids >= 0
    more = {}
    if types is not None and getattr(network.config, "type_vocab_size", 0) > 1:  # RoBERTa and others do not use types.
        more["token_type_ids"] = types
    ids = torch.where(inside, ids, getattr(network.config, "pad_token_id", None) or 0)
    return network(input_ids=ids, attention_mask=inside.long(), **more).last_hidden_state, inside


def pool_states(hidden: Any, inside: Any, pooling: Pooling) -> Any:
    """Return the state of the first token, or the mean state of all tokens, of each text (B, H) as float32."""
    if pooling == "cls":
        return hidden[:, 0].float()
    weight = inside[:, :, None].float()
    return (hidden.float() * weight).sum(1) / weight.sum(1)  # A mean in bf16 would be imprecise.


def check_length(model: TextModel, max_length: int | None) -> int:
    """Return the length at which texts are truncated, by default that of the model; raise if it is too large."""
    most = max(model.max_length, model.config.get("max_position_embeddings", 0))
    must = f"must lie from 3 to the model's {most} tokens"
    check_argument("max_length", max_length, int | None, low=3, high=most, must=must)
    return max_length or model.max_length


@lru_cache(maxsize=1)
def load_network(model: TextModel) -> Any:
    """Read a pretrained network for inference only; the last network is cached, because reading takes a second."""
    return model.network().requires_grad_(False)


def embed_texts(
    texts: Sequence[str],
    model: str | Path | TextModel | None = None,
    *,
    pair: Sequence[str] | None = None,
    pooling: Pooling = "mean",
    max_length: int | None = None,
    batch_size: int = 64,
    device: str = "auto",
    cache: Cache = True,
    on_rows: OnRows | None = None,
) -> FloatArray:
    """Embed texts with a pretrained model; each distinct text is computed only once.

    Parameters
    ----------
    texts : sequence of str
    model : str or Path, optional
        A Hugging Face folder or name; None for the bundled MiniLM. Nothing is downloaded.
    pair : sequence of str, optional
        A second text for each text; both are encoded together as `[CLS] text [SEP] pair [SEP]`.
    pooling : "mean" or "cls"
        The mean over the tokens, or the state of the first token.
    max_length : int, optional
        Number of tokens at which texts are truncated; None for the model's default.
    batch_size, device : int, str
        The number of texts per batch, and the device; "auto" for a GPU if there is one.
    cache : bool or folder
        Folder of the cache: True for the user's cache folder (or DISSENSUS_CACHE), False for no cache.
    on_rows : callable, optional
        Called with (number of available vectors, number of distinct texts).

    Returns
    -------
    (I, D) float32 array

    >>> embed_texts(["a cat", "a dog"]).shape
    (2, 384)
    """
    check_argument("pooling", pooling, Pooling)
    check_argument("batch_size", batch_size, int, low=1)
    source = model if isinstance(model, TextModel) else read_text_model(model)
    length = check_length(source, max_length)
    first, second = check_texts(texts), None if pair is None else check_texts(pair, "pair")
    if second is not None:
        _check_equal_numbers("pair", second, "texts", first)
    both = zip(first) if second is None else zip(first, second, strict=True)
    keys = [hash_parts(*map(str.encode, parts)) for parts in both]
    size = np.array([len(text) for text in first], np.int64)

    def compute(places: list[int]) -> FloatArray:
        torch, where, network = import_text_extra("torch"), torch_device(device), load_network(source)
        network.to(where)
        chosen = [first[i] for i in places], None if second is None else [second[i] for i in places]
        found = tokenize_texts(source, *chosen, length)
        order = sorted(range(len(found)), key=lambda i: -len(found[i][0]))  # Similar lengths need little padding.
        rows = np.empty((len(found), network.config.hidden_size), np.float32)
        for start in range(0, len(order), batch_size):
            at = order[start : start + batch_size]
            ids, types = np.full((2, len(at), len(found[at[0]][0])), [[[-1]], [[0]]])  # (B, longest text) each
            for row, i in enumerate(at):
                ids[row, : len(found[i][0])], types[row, : len(found[i][1])] = found[i]
            with torch.inference_mode():
                hidden, inside = hidden_states(
                    network, torch.as_tensor(ids).to(where), torch.as_tensor(types).to(where)
                )
                vectors = pool_states(hidden, inside, pooling)
                if source.normalize:
                    vectors = torch.nn.functional.normalize(vectors)
            rows[at] = vectors.cpu().numpy()
        network.to("cpu")  # The network stays cached, but the memory of the GPU is freed.
        return rows

    return embed_with_cache(
        keys, compute, f"text-{pooling}-{length}-{source.identity}", cache, size=size, on_rows=on_rows
    )


def _check_equal_numbers(name: str, texts: Sequence[str], other: str, others: Sequence[str]) -> None:
    if len(texts) != len(others):
        raise faults.UnequalTexts(argument=name, n_texts=len(texts), other_argument=other, n_other=len(others))


def embed_pairs(
    first: Sequence[str], second: Sequence[str], model: str | Path | None = None, **options: Any
) -> FloatArray:
    """Return features (I, 4 D) of pairs of texts: both vectors, their absolute difference and their product.

    `options` are those of `embed_texts` except `pair`.

    >>> embed_pairs(["a cat"], ["a dog"]).shape
    (1, 1536)
    """
    texts = [*check_texts(first), *check_texts(second, "second")]
    _check_equal_numbers("second", second, "first", first)
    a, b = np.split(embed_texts(texts, model, **options), 2)
    return np.concatenate([a, b, np.abs(a - b), a * b], axis=1)


def word_vectors(words: Sequence[str], model: str | Path | None = None) -> FloatArray:
    """Return the vectors (W, D) of words, which are the model's input embeddings averaged over the pieces of a word.

    `model` is a Hugging Face folder or name; None is the bundled MiniLM. The vector of a word without pieces, such as
    "", is zero.

    >>> word_vectors(["cat", "dog"]).shape
    (2, 384)
    """
    source = read_text_model(model)
    found = make_tokenizer(source.tokenizer).encode_batch_fast(check_texts(words, "words"), add_special_tokens=False)
    pieces = [word.ids for word in found]
    table = load_network(source).get_input_embeddings().weight.numpy()  # (V, D)
    sums = np.zeros((len(pieces), table.shape[1]), np.float32)
    counts = np.array([len(ids) for ids in pieces], np.int64)
    np.add.at(sums, np.repeat(np.arange(len(pieces)), counts), table[np.fromiter(chain(*pieces), np.int64)])
    return sums / np.maximum(counts, 1)[:, None].astype(np.float32)


def check_texts(texts: Sequence[str], name: str = "texts") -> list[str]:
    """Return the texts as a list; raise if one of them is not a text."""
    if isinstance(texts, str):
        raise faults.SingleString(argument=name)
    values = list(texts)
    for row, text in enumerate(values):
        if not isinstance(text, str):
            raise faults.NotAText(argument=name, row=row, value=quote_name(text))
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise faults.LoneSurrogate(argument=name, row=row, position=error.start) from None
    return values
