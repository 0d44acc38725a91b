"""Tiny Hugging Face models with random weights, written into a folder as their libraries write them."""

from pathlib import Path

import torch

PIECES = "[PAD] [UNK] [CLS] [SEP] a b c the cat sat dog ##s ##ted mat on good bad"
WORDS = PIECES.split()


def tiny_bert(folder: Path, kind: str = "bert", seed: int = 0, special: bool = True) -> Path:
    """A model of texts: "bert" (with token types), "roberta" or "distilbert" (without)."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    torch.manual_seed(seed)
    config = {
        "bert": lambda size: transformers.BertConfig(**size, type_vocab_size=2),
        "roberta": lambda size: transformers.RobertaConfig(**size, type_vocab_size=1, pad_token_id=0),
        "distilbert": lambda size: transformers.DistilBertConfig(
            vocab_size=len(WORDS), dim=8, n_layers=2, n_heads=2, hidden_dim=16, max_position_embeddings=20
        ),
    }[kind](
        {
            "vocab_size": len(WORDS),
            "hidden_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "max_position_embeddings": 20,
        }
    )
    network = transformers.AutoModel.from_config(config)
    for name, parameter in network.named_parameters():
        if "norm" not in name.lower():
            torch.nn.init.normal_(parameter, std=0.5)  # far apart, so that a wrong token shows
    network.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if special:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    return folder
