"""Build tables and their import reports from the columns of a file; the steps are the same for every format."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.arrays import is_first_of_pair
from dissensus.common.types import BoolArray
from dissensus.exceptions import MissingColumn
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table import find_columns as finding
from dissensus.table import kinds, notes
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.import_report import ImportReport
from dissensus.table.io import pairs
from dissensus.table.notes import Note, quote_columns
from dissensus.table.questions import Questions
from dissensus.table.spans import are_positions, are_tags, assign_span_layers, convert_spans_to_tags, name_positions

MAX_CLASSES = 1_000  # Up to this number of classes, labels are always accepted as classes.
MIN_ROWS_PER_CLASS = 10  # mean number of rows per class required in tables with more classes
MAX_VOTE_CELLS = 2 * 10**8  # maximum of items × classes in tables with more classes; their counts take 1.6 GB of memory
MAX_QUESTIONS = 50
ISO_DATE_PATTERN = r"^\d{4}-\d\d-\d\d"
MAX_TIME_LENGTH = 19  # characters of a time without fractions of seconds
MAX_TIMES_KEPT = 2_000_000  # rows; for longer tables, only the first and the last time are kept
ROW_NUMBER_DESCRIPTION = "its number (from 0)"
MIN_REPEATED_ROWS, MIN_REPEATED_SHARE = 5, 0.05  # If fewer rows or a smaller share repeat, there is no note.
MAX_TOKENS_OF_A_SPAN = 3  # If the median length of spans is at most this, offsets are read as tokens.


@dataclass(frozen=True)
class BuildOptions:
    """Options of `read` that apply after the columns have been read."""

    classes: Iterable[Any] | int | None = None
    abstain: Any = ()
    ticks: str | None = None
    normalize: bool = False
    map: Mapping[Any, Any] | None = None
    many_classes: bool = False
    kind: str | None = None  # None if the label type is guessed


GoldByQuestion = dict[str, tuple[list[Any], list[Any]]]  # question → items and gold labels


@dataclass
class ImportedColumns:
    """The columns of the used rows of a file, and the import report."""

    columns: dict[str, Any]
    report: ImportReport
    items: Any = None  # all items if some have no label
    annotators: Any = None
    kind: str | None = None  # the label type; None if it depends on the labels
    gold_by_question: GoldByQuestion = field(default_factory=dict)
    parts: dict[str, ImportedColumns] = field(default_factory=dict)  # question → columns, if label types differ
    guessed_question: bool = False

    def build_table(self, options: BuildOptions) -> Annotations | Questions:
        """Build the table, or one per question, with its import report."""
        columns, report = self.columns, self.report
        if report.warn_about_unused:
            warning = errors.RowsExcluded(
                report=report.describe_unused(), unused=dict(report.unused_counts), notes=tuple(report.notes)
            )
            warnings.warn(warning.add_subject(report.file) if report.file else warning, stacklevel=4)
        if self.parts:
            return self._build_parts(options)
        if len(columns["item"]) == 0:
            raise errors.NoUsableRows(unit="row", report="")
        if "question" in columns and "proba" in columns:
            raise errors.OneQuestionPerTable(parameter=ParameterName("proba="))
        self._check_questions()
        if "label" in columns:
            columns["label"] = _rewrite_labels(columns["label"], options, report)
        if "label" in columns and (options.ticks is not None or options.kind == "sets"):
            columns["label"] = _split_ticks(columns["label"], options)
        if "label" in columns and _is_list_column(columns["label"]):
            if (questions := self._split_lists(options)) is not None:
                return self._attach_reports(questions)
        arguments = self.columns | {"items": self.items, "classes": options.classes, "abstain": options.abstain}
        if "question" in arguments:
            return self._attach_reports(Questions.from_arrays(**arguments), options)
        return self._attach_reports(Annotations.from_arrays(**arguments, annotators=self.annotators), options)

    def _build_parts(self, options: BuildOptions) -> Questions:
        """Build one table per question of an export with several label types; all tables share the import report."""
        if options.classes is not None:
            raise errors.OneQuestionNeeded(parameter=ParameterName("classes="), questions=tuple(sorted(self.parts)))
        tables: dict[str, Any] = {}
        for question, part in self.parts.items():
            part.report.warn_about_unused = False  # The warning for the whole file was already issued.
            table: Any = part.build_table(options)
            table_notes = [
                *self.report.notes,
                *(note.add_subject(repr(question)) for note in table.import_report.notes),
            ]
            tables[question] = table.with_import_report(
                replace(self.report, gold=table.import_report.gold, notes=table_notes)
            )
        self.report.columns["label"] = ", ".join(f"'{question}' ({table.kind})" for question, table in tables.items())
        return Questions(tables)

    def _attach_reports(
        self, result: Annotations | Questions, options: BuildOptions | None = None
    ) -> Annotations | Questions:
        several = isinstance(result, Questions)
        tables = dict(result) if isinstance(result, Questions) else {"": result}
        report = self.report
        if not tables:
            raise errors.NoUsableRows(unit="answer", report=report.describe_unused())
        guesses: list[Note] = []
        if options is not None:
            abstained = len(self.columns["item"]) - sum(map(len, tables.values()))
            report.exclude("rows without an answer", abstained, notes.DeclaredAbstention())
            kind = options.kind or (self.kind if options.classes is None else None)
            for question, table in tables.items():
                if kind is not None:
                    tables[question] = table.as_kind(kind, ordered=options.classes is not None)
                elif options.classes is None and not options.many_classes and table.proba is None:
                    tables[question], note = convert_to_guessed_kind(table)
                    if note is not None:
                        guesses.append(note.add_subject(f"Question {question}") if several else note)
                joined = len(table) - len(tables[question])
                report.exclude("rows that are one set with another of their item and annotator", joined)
        for question, table in tables.items():
            if options is not None and options.classes is None and not options.many_classes:
                _check_classes(table, report.columns.get("label", "'label'"))
            gold = self.gold_by_question.get(question) if several else next(iter(self.gold_by_question.values()), None)
            spelt = naming.find_spelling_variants(table.classes) if table.kind == "classes" else None
            table_notes = [note for note in (_note_repeated_rows(table), spelt) if note is not None]
            source = replace(report, gold=gold, notes=[*report.notes, *guesses, *table_notes])
            tables[question] = table.with_import_report(source)
        return Questions(tables) if several else tables[""]

    def _check_questions(self) -> None:
        """Drop a guessed column of questions if it seems to contain texts; raise if the caller chose the column."""
        if "question" not in self.columns:
            return
        question, item = (naming.to_column(self.columns[role], role) for role in ("question", "item"))
        n, rows = finding.count_distinct_rows(question), len(question)
        one_per_item = n > 2 and n == finding.count_distinct_rows(item) == finding.count_distinct_rows(question, item)
        if not one_per_item and n <= max(MAX_QUESTIONS, rows // MIN_ROWS_PER_CLASS):
            return
        name = self.report.columns["question"]
        error = errors.ColumnNotQuestions(column=name, n_questions=n, n_rows=rows, one_per_item=one_per_item)
        if not self.guessed_question:
            raise error
        del self.columns["question"]
        self.report.columns["text"] = self.report.columns.pop("question")
        self.report.add_note(notes.QuestionsReadAsTexts(column=name, contents=error.contents))

    def _convert_to_sets(self, lists: Any, several: BoolArray) -> None:
        """Convert each list of labels to a set of options; an empty list becomes the empty set."""
        names = [None if labels is None else kinds.name_set(labels) for labels in lists.to_pylist()]
        self.columns["label"], self.kind = pa.array(names, pa.string()), "sets"
        if several.any():
            self.report.add_note(notes.AnswersReadAsSets(n_several=int(several.sum()), n_answers=len(names)))

    def _split_lists(self, options: BuildOptions) -> Questions | None:
        """Split lists of labels into yes/no questions, and return these, or into votes or sets in `columns`."""
        columns = self.columns
        lists = _check_flat_lists(columns["label"])
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        several = sizes > 1
        if options.ticks is None and (several.any() or options.kind == "sets"):
            self._convert_to_sets(lists, several)
            return None
        if options.ticks == "questions" and "question" in columns:
            raise errors.OneQuestionPerTable(parameter=ParameterName("ticks='questions'"))
        self.report.exclude("answers without a choice", int((sizes == 0).sum()))
        if several.any():
            into = "votes" if options.ticks == "votes" else "yes/no questions"
            self.report.add_note(notes.SelectionsSplit(into=into, n=int(several.sum())))
        if self.items is None:
            self.items = naming.encode_column(naming.to_column(columns["item"], "item"), "item")[0]
        if self.annotators is None and "question" not in columns:
            self.annotators = naming.encode_column(naming.to_column(columns["annotator"], "annotator"), "annotator")[0]
        rows = np.repeat(np.arange(len(sizes)), sizes)
        self.columns = {
            role: naming.to_floats(values, role)[rows]
            if role == "weight"
            else naming.to_arrow_array(values, role).take(pa.array(rows))
            for role, values in columns.items()
            if role != "label"
        }
        self.columns["label"] = lists.flatten()
        if options.ticks != "questions" or not several.any():
            return None
        if "weight" in columns:
            raise errors.WeightedTicks
        return Questions.from_ticks(self.columns["label"], self.columns["item"], self.columns["annotator"], self.items)


def _split_ticks(label: Any, options: BuildOptions) -> Any:
    """Split labels such as "a|b" into lists if the options require it; otherwise replace blank labels by empty sets."""
    if _is_list_column(label):
        return label
    column = naming.to_arrow_array(label, "label")
    if not pa.types.is_string(column.type):
        return label
    if options.ticks is None:
        blank = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")
        return pc.if_else(blank, kinds.EMPTY_SET, column)
    if not kinds.look_like_sets(np.array(column.drop_null().unique().to_pylist(), object)):
        return label
    return pa.array(
        [None if one is None else [p.strip() for p in one.split(kinds.OPTION_SEPARATOR)] for one in column.to_pylist()]
    )


def convert_to_guessed_kind(table: Annotations) -> tuple[Annotations, Note | None]:
    """Return the table converted to the label type that its labels look like, and a note about the guess."""
    if are_tags(table.classes) and are_positions(table.items):
        return table.as_kind("spans"), notes.LabelTypeGuessed(kind="tags of positions in documents")
    if kinds.guess_kind(table.classes) == "numbers":
        return table.as_kind("numbers"), notes.LabelTypeGuessed(kind="numbers")
    if kinds.look_like_decimal_commas(table.classes):
        return table, notes.LabelsWithCommas()
    if kinds.look_like_sets(table.classes):
        return table.as_kind("sets"), notes.LabelTypeGuessed(kind="sets of options")
    n = int(table.rating_codes.max(initial=-1)) + 1
    several = int(is_first_of_pair(table.rating_codes, table.label).sum()) - n
    if several >= max(MIN_REPEATED_ROWS, MIN_REPEATED_SHARE * n):
        return table, notes.SeveralLabelsPerItem(n=several)
    return table, notes.LabelsMayBeGrades() if kinds.look_like_grades(table.classes) else None


def import_frame(
    read_columns: Callable[[finding.ColumnNames | None], Any],
    columns: finding.ColumnNames,
    wide: bool | None,
    format_name: str,
    kind: str | None = None,
) -> ImportedColumns:
    """Return the columns of a frame, found by name or content, or the cells of a wide table."""
    if kind == "pairs":
        whole = read_columns(None)
        if not pairs.are_pair_items(finding.column_names(whole), columns):
            return ImportedColumns(*pairs.import_pairs(whole, columns, format_name), kind="pairs")
    guessed: dict[str, str] = {}
    frame = wide_columns = None
    original_columns = columns
    if not wide:
        try:
            frame = read_columns(columns)
            columns.resolve(finding.column_names(frame))
        except MissingColumn as error:
            frame = read_columns(None)
            available = finding.column_names(frame)
            if kind in (None, "spans") and (places := finding.find_span_columns(frame, columns)) is not None:
                return _import_spans(frame, places, format_name)
            unnamed = kind is None and columns.item is None  # If the caller chose two columns, they may be a key.
            if unnamed and pairs.find_pair_columns(available, columns) is not None:
                return ImportedColumns(*pairs.import_pairs(frame, columns, format_name), kind="pairs")
            try:
                columns, guessed = finding.guess_missing_columns(frame, columns, error)
            except MissingColumn as missing:
                annotators = finding.split_column_names(
                    columns.annotator, available
                )  # Several annotators may have a column each.
                no_annotator = isinstance(missing, errors.RoleColumnMissing) and missing.role == "annotator"
                may_be_wide = no_annotator or len(annotators) > 1
                if wide is None and may_be_wide and columns.label is None and columns.proba is None:
                    wide_columns = finding.find_wide_columns(frame, columns, insist=False)
                if wide_columns is None:
                    raise errors.SuggestWideTable(missing=missing) if len(annotators) > 1 else missing from None
    else:
        frame = read_columns(None)
        wide_columns = finding.find_wide_columns(frame, columns, insist=True)
    if wide_columns is not None:
        return _import_wide(frame, *wide_columns, format_name)
    columns_by_role = columns.resolve(finding.column_names(frame))
    arrays = columns.read_arrays(frame)
    if original_columns.item is None and (system := finding.find_system_column(read_columns, columns_by_role, arrays)):
        frame, columns = read_columns(None), replace(columns, item=(columns_by_role["item"], system))
        guessed["item"] = "by name and content"
        columns_by_role, arrays = columns.resolve(finding.column_names(frame)), columns.read_arrays(frame)
    report = ImportReport(format=format_name, n_rows=len(arrays["item"]))
    for role, names in columns_by_role.items():
        named = (
            "'p_…'" if role == "proba" else " with ".join(repr(name) for name in finding.flatten_column_names([names]))
        )
        report.columns[role] = named + (f" (guessed {guessed[role]})" if role in guessed else "")
    result = ImportedColumns(arrays, report, guessed_question=columns.question is None)
    if original_columns.item is None and isinstance(columns_by_role["item"], str) and not guessed.get("item"):
        finding.check_item_column(read_columns, columns_by_role, arrays)
    used = finding.flatten_column_names(columns_by_role.values())
    _import_gold(frame, used, result, arrays["item"])
    _import_times(frame, used, result)
    return result


def _import_spans(frame: Any, places: Mapping[str, Any], format_name: str) -> ImportedColumns:
    """Return the imported columns of a table of tags or spans, with labels as tags of positions.

    A row of spans without a start means that the annotator read the document without marking a span.
    """
    data = finding.to_arrow(frame, finding.flatten_column_names(places.values()))
    columns = {role: finding.read_role_column(data, name, role) for role, name in places.items()}
    cells = {
        role: finding.to_chunked_array(naming.to_column(column, role)).to_pylist() for role, column in columns.items()
    }
    report = ImportReport(format=format_name, n_rows=len(cells["annotator"]))
    report.columns = {
        role: " with ".join(map(repr, finding.flatten_column_names([name]))) for role, name in places.items()
    }

    def whole(role: str, row: int) -> int:
        text = str(cells[role][row]).strip().removesuffix(".0")
        if not text.isdecimal():
            raise errors.InvalidCell(column=places[role], row=row, value=text, expected="a whole number")
        return int(text)

    rows = [row for row, who in enumerate(cells["annotator"]) if who is not None and cells["document"][row] is not None]
    report.exclude("rows without an annotator or document", report.n_rows - len(rows))
    if "token" in places:
        kept = [row for row in rows if cells["label"][row] is not None]
        report.exclude("rows without a label", len(rows) - len(kept))
        names = name_positions([cells["document"][row] for row in kept], [whole("token", row) for row in kept])
        found = {"item": names, **{role: [cells[role][row] for row in kept] for role in ("annotator", "label")}}
        return ImportedColumns(found, report)
    marked, readings = [], []
    for row in rows:
        document, who = str(cells["document"][row]), cells["annotator"][row]
        if cells["start"][row] is None or cells["label"][row] is None:
            readings.append((document, who))
        else:
            marked.append((document, who, whole("start", row), whole("end", row), cells["label"][row]))
    short = marked and np.median([end - start for _, _, start, end, _ in marked]) <= MAX_TOKENS_OF_A_SPAN
    tokens: dict[str, int] | None = {} if short else None  # Other documents end with their last span.
    report.add_note(notes.OffsetsGuessed(unit="tokens" if short else "characters"))
    report.unit = "spans"
    layers = assign_span_layers(marked)
    called = {layer: f"spans, {layer}" if layer else "spans" for layer in sorted({*layers, ""})}
    by_layer: dict[str, list[Any]] = {name: [] for name in called.values()}
    for span, layer in zip(marked, layers, strict=True):
        by_layer[called[layer]].append(span)
    tags = convert_spans_to_tags(by_layer, readings, tokens=tokens)
    column_values: dict[str, Any] = {role: getattr(tags, role) for role in ("item", "annotator", "label", "question")}
    report.exclude("spans that overlap another one of the same annotator", tags.n_overlapping)
    report.exclude("spans of length 0", tags.n_empty)
    if any(layers):
        report.add_note(notes.SpansOverlap(question="", names=tuple(by_layer)))
    else:
        del column_values["question"]
    return ImportedColumns(column_values, report)


def _import_gold(frame: Any, used: Sequence[str], taken: ImportedColumns, items: Any) -> None:
    """Read gold labels from a column of the frame if it has one value per item; `items` holds the item of each row."""
    gold_columns = [name for name in finding.column_names(frame) if name in finding.GOLD_COLUMNS and name not in used]
    if gold_columns and "question" in taken.columns:
        taken.report.add_note(notes.GoldColumnIgnored(column=gold_columns[0], reason="there are several questions"))
        return
    for name in gold_columns:
        label = naming.to_arrow_array(finding.to_arrow(frame, [name])[name], name)
        item = naming.to_arrow_array(items, "item")
        has_gold = pa.array(~naming.missing_rows(label))
        values = pa.table([item, label], names=["i", "g"]).filter(has_gold).group_by(["i", "g"]).aggregate([])
        if finding.count_distinct_rows(values["i"]) < values.num_rows:
            taken.report.add_note(notes.GoldColumnIgnored(column=name, reason="its values differ within items"))
        elif values.num_rows and not taken.gold_by_question:
            taken.gold_by_question[""] = (values["i"].to_pylist(), values["g"].to_pylist())
            taken.report.columns["gold"] = f"'{name}'"


def _import_times(frame: Any, used: Sequence[str], taken: ImportedColumns) -> None:
    """Read the column of times and their range; in a text column, every row must begin with a date."""
    for name in finding.find_time_column(finding.column_names(frame), used):
        column = finding.to_chunked_array(finding.to_arrow(frame, [name])[name])
        kind = column.type
        if not (naming.is_text_type(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            continue
        texts = pc.utf8_slice_codeunits(column.cast(pa.string()), 0, MAX_TIME_LENGTH).drop_null()
        if len(texts) and pc.all(pc.match_substring_regex(texts, ISO_DATE_PATTERN)).as_py():
            ends, report = pc.min_max(texts).as_py(), taken.report
            report.period = (ends["min"], ends["max"])
            if len(column) <= MAX_TIMES_KEPT:
                report.label_times = (taken.columns["item"], taken.columns["annotator"], column)
            report.columns["time"] = f"{name!r} ({ends['min']} to {ends['max']})"


def _import_wide(frame: Any, item: str | None, annotators: list[str], format_name: str) -> ImportedColumns:
    """Return the columns of a wide table, with one row per non-empty cell."""
    data = finding.to_arrow(frame, [*annotators, *([item] if item else [])])
    n = len(data[annotators[0]])
    items = naming.to_arrow_array(data[item], item) if item else pa.array(np.arange(n))
    columns = [naming.to_arrow_array(data[name], name) for name in annotators]
    types = {column.type for column in columns if not pa.types.is_null(column.type)}
    kind = pa.string() if len(types) > 1 else next(iter(types), pa.null())
    cells = pa.concat_arrays([column.cast(kind) for column in columns])
    filled_cells = np.flatnonzero(~naming.missing_rows(cells))
    arrays = {
        "item": items.take(pa.array(filled_cells % n)),
        "annotator": pa.array(np.array(annotators, object)[filled_cells // n], pa.string()),
        "label": cells.take(pa.array(filled_cells)),
    }
    report = ImportReport(format=f"wide {format_name}", unit="cells", n_rows=n * len(annotators))
    report.columns = {
        "item": repr(item) if item else ROW_NUMBER_DESCRIPTION,
        "annotator": f"the columns {quote_columns(annotators)}",
    }
    report.columns["label"] = "their cells"
    used = (*annotators, item, *finding.GOLD_COLUMNS)
    if unread := [name for name in finding.column_names(frame) if name not in used]:
        report.columns["not read"] = quote_columns(unread)
    result = ImportedColumns(arrays, report, naming.encode_column(items, "item")[0], annotators)
    if len(result.items) < n:
        raise errors.DuplicateWideRows(column=str(item), n=n - len(result.items))
    _import_gold(frame, [], result, items)
    report.exclude("empty cells", report.n_rows - len(arrays["label"]))
    return result


def _rewrite_labels(column: Any, options: BuildOptions, report: ImportReport) -> Any:
    """Return the labels after applying the options `map` and `normalize`."""
    if not options.map and not options.normalize:
        return column
    if _is_list_column(column):
        lists = _check_flat_lists(column)
        if lists.null_count:
            raise errors.RowsWithoutList
        values = _rewrite_labels(lists.flatten(), options, report)
        lists_of_labels = pa.ListArray.from_arrays(lists.offsets, values).to_pylist()
        return pa.array([list(dict.fromkeys(labels)) for labels in lists_of_labels], pa.list_(values.type))
    labels = naming.to_arrow_array(column, "label").dictionary_encode()
    codes = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    old = labels.dictionary.to_pylist()
    count = np.bincount(codes[codes >= 0], minlength=len(old))
    by_text = {str(key): value for key, value in (options.map or {}).items()}
    new = [by_text.get(str(name), name) for name in old]
    if unknown := sorted(by_text.keys() - set(map(str, old))):
        report.add_note(notes.UnknownMapKeys(labels=unknown))
    if options.normalize:
        spellings: dict[str, Counter[str]] = {}
        for name, n in zip(new, count.tolist(), strict=True):
            if isinstance(name, str):
                spellings.setdefault(naming.fold_spelling(name), Counter())[" ".join(name.split())] += n
        best = {key: max(sorted(same, reverse=True), key=same.__getitem__) for key, same in spellings.items()}
        new = [best.get(naming.fold_spelling(name), name) for name in new]
    new = [None if name is None or not str(name).strip() else name for name in new]
    large = any(isinstance(name, int) and abs(name) >= 2**63 for name in new)  # Arrow has no larger integers.
    if large or len({type(name) for name in new if name is not None}) > 1:
        new = [None if name is None else str(name) for name in new]
    changed = sum(n for name, other, n in zip(old, new, count.tolist(), strict=True) if name != other)
    if changed:
        report.add_note(notes.LabelsRewritten(n=changed))
    return pa.array([*new, None]).take(pa.array(np.where(codes < 0, len(new), codes)))


def _note_repeated_rows(table: Annotations) -> Note | None:
    """Return a note if many rows repeat other rows, as in a file that was concatenated twice."""
    copies = len(table) - int(is_first_of_pair(table.rating_codes, table.label).sum())
    if table.proba is not None or copies < max(MIN_REPEATED_ROWS, MIN_REPEATED_SHARE * len(table)):
        return None
    return notes.RepeatedRows(n=copies, n_rows=len(table))


def _check_classes(table: Annotations, label: str) -> None:
    """Raise if the labels do not look like classes, because methods need memory for items × classes."""
    K, N = table.n_classes, len(table)
    many = K > MAX_CLASSES and (MIN_ROWS_PER_CLASS * K > N or K * table.n_items > MAX_VOTE_CELLS)
    if many and table.kind in kinds.CLASS_KINDS:
        raise errors.LabelsNotClasses(column=label, n_classes=K, n_rows=N, n_items=table.n_items)


def _is_list_column(column: Any) -> bool:
    kind = getattr(column, "type", None)
    return kind is not None and bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _check_flat_lists(column: Any) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_nested(whole.type.value_type):
        found = f"lists of {whole.type.value_type}"
        raise errors.WrongColumn(column="column 'label'", expected="lists of labels", description=found)
    return whole.cast(pa.list_(whole.type.value_type))
