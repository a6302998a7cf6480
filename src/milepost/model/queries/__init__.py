"""Queries: formulas over tags and topic filters, their text and their normal form."""

from milepost.model.queries.formula import (
    QUERY_CHARACTERS_MAX,
    QUERY_DEPTH_MAX,
    And,
    Atom,
    HasTag,
    Not,
    OnTopic,
    Or,
    Query,
    holds,
)
from milepost.model.queries.normal_form import (
    CLAUSES_MAX,
    LITERALS_MAX,
    Clause,
    NormalForm,
    atoms_of,
    is_negated_only,
    normal_form,
)
from milepost.model.queries.parser import parse_query, point_at

__all__ = [
    "CLAUSES_MAX",
    "LITERALS_MAX",
    "QUERY_CHARACTERS_MAX",
    "QUERY_DEPTH_MAX",
    "And",
    "Atom",
    "Clause",
    "HasTag",
    "NormalForm",
    "Not",
    "OnTopic",
    "Or",
    "Query",
    "atoms_of",
    "holds",
    "is_negated_only",
    "normal_form",
    "parse_query",
    "point_at",
]
