"""LDL-NM with room for more units than it uses: networks of different sizes have one shape, and are trained as one.

Weights of the unused units are 0, get no gradient and stay 0, so the network says what it would say without them.
"""

from __future__ import annotations

from torch import nn
from torch.nn.functional import pad

from dissensus.common.parameters import is_whole, param
from dissensus.exceptions import BadParameter
from dissensus.learning.objectives.base import Branch, objectives
from dissensus.learning.rows import RowEmbedding
from reproductions.ldl_nm import LDLNMHead, LDLNMObjective


@objectives.register(
    "ldl-nm-with-room", summary="ldl-nm, in layers as large as those of other sizes", cite="Weerasooriya et al. 2021"
)
class RoomyLDLNM(LDLNMObjective):
    """LDL-NM whose layers are larger than its sizes."""

    room: tuple[int, int] = param(
        (20, 20),
        "units that the layers of items and of annotators have, used or not",
        check=lambda room: isinstance(room, tuple | list) and len(room) == 2 and all(map(is_whole, room)),
        must="must be two whole numbers, of items and of annotators",
    )

    def check_parameters(self) -> None:
        """Also check that the sizes fit into the room."""
        super().check_parameters()
        if self.pair_size is not None or self.combine == "sum":
            raise BadParameter("room is for concatenation with pair_size=None; leave one of them out.")
        if self.room[0] < self.item_size or self.room[1] < self.annotator_size:
            raise BadParameter(f"room {self.room} is less than {self.item_size} and {self.annotator_size}.")

    def head(self, branch: Branch, width: int) -> LDLNMHead:
        """Make the layers as without room, then pad them with zeros."""
        head, (items, annotators) = super().head(branch, width), self.room
        both = items + annotators
        head.table = RowEmbedding(pad(head.table.weight.detach(), (0, annotators - self.annotator_size)))
        assert head.of_annotator is not None
        _pad_layer(head.item, width, items)
        _pad_layer(head.of_item, items, both)
        _pad_layer(head.of_annotator, annotators, both)
        _pad_layer(head.residual, both, both)
        for last in (head.to_label, head.to_item, head.to_annotator):
            _pad_layer(last, both, self.n_classes_)
        if head.described is not None:
            _pad_layer(head.described, head.described.in_features, annotators)
        return head


def _pad_layer(layer: nn.Linear, inputs: int, outputs: int) -> None:
    columns, rows = inputs - layer.in_features, outputs - layer.out_features
    layer.weight = nn.Parameter(pad(layer.weight.detach(), (0, columns, 0, rows)))
    if layer.bias is not None:
        layer.bias = nn.Parameter(pad(layer.bias.detach(), (0, rows)))
    layer.in_features, layer.out_features = inputs, outputs
