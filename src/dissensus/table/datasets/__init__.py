"""Load labelled data sets: the bundled one, or others from the folder that DISSENSUS_DATA names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dissensus.common.registry import suggest_nearest
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table.datasets import digits
from dissensus.table.datasets.dataset import Dataset
from dissensus.table.datasets.folder import (
    FOLDER_VARIABLE,
    find_data_folder,
    find_dataset_folders,
    is_labelled,
    read_description,
    read_folder,
)
from dissensus.table.questions import Questions

__all__ = ["Dataset", "DatasetInfo", "list_datasets", "load_dataset"]


@dataclass(frozen=True)
class DatasetInfo:
    """Description of an available data set."""

    name: str
    title: str
    source: str  # "bundled", or the folder
    files: tuple[str, ...]
    labelled: bool  # True if it has labels, so that `load_dataset` can load it


def list_datasets(folder: str | Path | None = None) -> list[DatasetInfo]:
    """Return descriptions of the bundled data set and of those in the data folder, sorted by name.

    Parameters
    ----------
    folder : path, optional
        The data folder; by default, the one in the environment variable DISSENSUS_DATA.

    Returns
    -------
    list of DatasetInfo

    >>> info = list_datasets()[0]
    >>> type(info).__name__, info.name, info.source
    ('DatasetInfo', 'digits-crowd', 'bundled')
    """
    bundled = DatasetInfo(digits.DATASET_NAME, digits.DATASET_DESCRIPTION.splitlines()[0], "bundled", (), True)
    data_path = find_data_folder(folder)
    return [bundled] + [
        DatasetInfo(
            name,
            read_description(path).splitlines()[0],
            str(path),
            tuple(sorted(file.name for file in path.iterdir())),
            is_labelled(path),
        )
        for name, path in ({} if data_path is None else find_dataset_folders(data_path)).items()
    ]


def load_dataset(
    name: str,
    *,
    gold: str | None = None,
    votes: str | None = None,
    folder: str | Path | None = None,
    seed: int | None = None,
) -> Dataset:
    """Load a labelled data set: the annotations, and further data about the annotated items in the same order.

    Names are text, as in the files. The classes are all labels of annotations and gold labels, sorted as text, or as
    numbers if all are whole numbers.

    Parameters
    ----------
    name : str
        `digits-crowd`, or a sub-folder of the data folder; `list_datasets()` and `dissensus list datasets` list them.
    gold : str, optional
        Alternative gold labels; for example, "paper" reads gold_paper.csv.gz.
    votes : "annotations" or "counts", optional
        The file to read if a folder has both; annotations by default.
    folder : path, optional
        The data folder; by default, the one in the environment variable DISSENSUS_DATA.
    seed : int, optional
        Seed of the simulated crowd and labels of `digits-crowd`.

    Returns
    -------
    Dataset

    >>> data = load_dataset("digits-crowd")
    >>> data.missing_parts
    'digits-crowd has every part.'
    >>> data.gold.shape, data.features.shape, list(data.splits)
    ((1797,), (1797, 64), ['test', 'train'])
    """
    if name == digits.DATASET_NAME:
        if gold is not None or votes is not None:
            raise errors.UnusedForDataset(name=name, parameters=(ParameterName("gold="), ParameterName("votes=")))
        return digits.make_digits_crowd(0 if seed is None else seed)
    data_path = find_data_folder(folder)
    paths = {} if data_path is None else find_dataset_folders(data_path)
    if name not in paths:
        guess = suggest_nearest(name, [digits.DATASET_NAME, *paths])
        raise errors.UnknownDataset(
            name=name,
            guess=guess,
            n_datasets=len(paths) + 1,
            variable=FOLDER_VARIABLE,
            folder_named=data_path is not None,
        )
    if seed is not None:
        raise errors.UnusedForDataset(name=name, parameters=(ParameterName("seed="),))
    whole = read_folder(paths[name], gold=gold, votes=votes)
    tables = whole.annotations.values() if isinstance(whole.annotations, Questions) else [whole.annotations]
    labelled = np.any([np.diff(table.item_ptr) > 0 for table in tables], axis=0)
    return whole if labelled.all() else replace(whole.select_items(labelled), unlabelled_version=whole)
