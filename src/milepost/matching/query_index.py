"""Index of Boolean queries: find the queries that a message satisfies.

Each distinct query is stored once, for all subscriptions that use it. Its clauses (`normal_form`) are indexed under a key, so
that every message that satisfies a clause leads to it:

    a single atom                 the atom itself, no check needed ("simple": every ordinary MQTT subscription)
    few clauses under the atom    the atom with the fewest clauses                 a & b & !c   ->   b: [.., a & !c, ..]
    many clauses under the atom   the two atoms with the fewest clauses            a & b & !c   ->   (b, a): [.., !c, ..]
    negated atoms only            a list that every message is checked against (T13)

Besides its key, a clause has two atoms in columns, checked for all candidate clauses at once, and rarely a list of further
ones. `_truth` has a flag per literal (an atom or its negation): whether the current message satisfies it.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import NO_LIST, ListPool, column, element_view
from milepost.model.queries import Atom, Clause, HasTag, NormalForm, OnTopic, Query, normal_form
from milepost.model.reasons import Malformed, Reason

SINGLE_MAX: Final = 128
"""Number of clauses under one atom from which further clauses with two atoms are indexed under both."""

CLAUSES_PER_QUERY: Final = 3
"""Capacity for clauses: average per query."""

_SHARDS: Final = 128
_HASH_MASK: Final = (1 << 60) - 1
_NO_CLAUSE: Final = 0
_EXTRA: Final = 3

Literals = tuple[int, ...]
"""A clause as literals: twice an atom's number, plus one if the atom is negated."""

QueryNumbers = NDArray[np.int32]


ALWAYS_TRUE: Final = 0
"""Number of the pseudo-atom that every message satisfies."""

_SHARD_MASK: Final = _SHARDS - 1
_CHUNK_BITS: Final = 12
_CHUNK: Final = 1 << _CHUNK_BITS
_HAS_NAME, _HAS_PLUS, _HAS_HASH = 1, 2, 4
_SATURATED: Final = 255


class QueryIndex:
    """At most `limit` distinct queries over a vocabulary of at most `atoms_max` tags and topic filters."""

    def __init__(self, limit: int, atoms_max: int) -> None:
        clauses_max = CLAUSES_PER_QUERY * limit
        self._vocabulary = Vocabulary(atoms_max)
        self._lists = ListPool(atoms_max + 2 * clauses_max + 1, 2 * clauses_max)
        # by query
        self._first = element_view(
            column(limit, np.int32)
        )  # its first clause; for a simple query, the negated number of its atom
        self._hash = element_view(column(limit, np.uint64))
        self._uses = element_view(column(limit, np.int32))
        self._scratch = column(limit, np.int32)
        self._queries_by_hash: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._free: list[int] = []
        self._allocated = 0
        # by clause
        # side by side in memory: query, first literal, second literal, list of the other literals
        self._clause_data = column(clauses_max + 1, np.int32, 4)
        self._next = element_view(column(clauses_max + 1, np.int32))
        self._position = element_view(column(clauses_max + 1, np.int32))
        self._key = element_view(column(clauses_max + 1, np.int32))
        self._second_key = element_view(column(clauses_max + 1, np.int32))
        self._free_clauses: list[int] = []
        self._clauses_allocated = 1
        self._extra_literals = 0
        # by atom
        self._query_of_atom = element_view(column(atoms_max + 1, np.int32))  # the simple query of this atom, plus one
        self._clauses_by_atom = element_view(column(atoms_max + 1, np.int32))
        self._clauses_by_pair: dict[int, dict[int, int]] = {}
        self._negated_only = self._lists.new()
        self._truth = column(2 * atoms_max + 2, np.bool_)
        self._truth[2 * ALWAYS_TRUE] = True
        self._truth_of = element_view(self._truth)

    def __len__(self) -> int:
        return self._allocated - len(self._free)

    def acquire(self, query: Query) -> int:
        """Add one use of a query; return its number."""
        form = (Clause(frozenset([query])),) if isinstance(query, HasTag | OnTopic) else normal_form(query)
        self._check_room(form)
        atom = _maybe_single_atom(form)
        number = self._acquire_normal_form(form) if atom is None else self._acquire_atom(atom)
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Remove one use of a query, and the query with the last use."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        first = self._first[number]
        if first < 0:
            self._query_of_atom[-first] = 0
            self._vocabulary.release(-first)
        else:
            self._forget_hash(number)
            for clause in list(self._clauses_of(number)):
                self._unindex_clause(clause)
        self._free.append(number)

    def has_negated_only_clause(self, number: int) -> bool:
        """Whether a clause of the query has only negated atoms, so that every message must be checked against it."""
        return any(not self._key[clause] for clause in self._clauses_of(number))

    def satisfied_by(self, topic: str, tags: AbstractSet[str]) -> tuple[list[int], QueryNumbers]:
        """Return the queries that a message satisfies, each once: the simple ones, and all others."""
        atoms = self._vocabulary.satisfied_by(topic, tags)
        query_of_atom, clauses_by_atom, clauses_by_pair = self._query_of_atom, self._clauses_by_atom, self._clauses_by_pair
        simple, clause_lists = [], []
        for atom in atoms:
            if query := query_of_atom[atom]:
                simple.append(query - 1)
            if clause_list := clauses_by_atom[atom]:
                clause_lists.append(clause_list)
            if lists_by_atom := clauses_by_pair.get(atom):
                clause_lists += [lists_by_atom[other] for other in atoms if other in lists_by_atom]
        if self._lists.length(self._negated_only):
            clause_lists.append(self._negated_only)
        return simple, self._satisfied_clauses(clause_lists, atoms) if clause_lists else _NO_QUERIES

    def _satisfied_clauses(self, clause_lists: list[int], atoms: list[int]) -> QueryNumbers:
        """Return the queries of the indexed clauses that the atoms satisfy."""
        clauses = np.concatenate([self._lists.view(list_id) for list_id in clause_lists])
        truth, truth_of = self._truth, self._truth_of
        for atom in atoms:
            truth_of[2 * atom], truth_of[2 * atom + 1] = True, False
        queries, one, other, extra = self._clause_data.take(clauses, axis=0).T
        is_true = truth.take(one)
        is_true &= truth.take(other)
        if self._extra_literals:
            for at in np.flatnonzero(is_true & (extra != NO_LIST)).tolist():
                is_true[at] = truth[self._lists.view(int(extra[at]))].all()
        for atom in atoms:
            truth_of[2 * atom], truth_of[2 * atom + 1] = False, True
        return self._distinct(queries[is_true])

    def _distinct(self, queries: QueryNumbers) -> QueryNumbers:
        if queries.size < 2:
            return queries
        positions = np.arange(queries.size, dtype=np.int32)
        self._scratch[queries] = positions
        distinct: QueryNumbers = queries[self._scratch[queries] == positions]
        return distinct

    def _check_room(self, form: NormalForm) -> None:
        """Raise `Malformed` if a query does not fit, before anything has changed."""
        if not self._vocabulary.has_room_for({atom for clause in form for atom in clause.required | clause.excluded}):
            raise Malformed(Reason.VOCABULARY_FULL, f"{len(self._vocabulary)} tags and topic filters are in use")
        clauses_max = len(self._clause_data) - 1
        clauses = self._clauses_allocated - 1 - len(self._free_clauses) + len(form)
        literals = self._extra_literals + sum(max(0, len(clause.required) + len(clause.excluded) - 2) for clause in form)
        if max(clauses, literals) > clauses_max:
            detail = f"there is room for {clauses_max} clauses, and for as many atoms beyond two in a clause"
            raise Malformed(Reason.SUBSCRIPTIONS_FULL, detail)

    def _acquire_atom(self, atom: Atom) -> int:
        number = self._vocabulary.take(atom)
        if self._query_of_atom[number]:
            self._vocabulary.release(number)
            return self._query_of_atom[number] - 1
        query = self._new_query()
        self._query_of_atom[number] = query + 1
        self._first[query] = -number
        return query

    def _acquire_normal_form(self, form: NormalForm) -> int:
        clauses = sorted(self._literals_of(clause) for clause in form)
        form_hash, known = self._find_hash(clauses)
        if known is not None:
            self._release(clauses)
            return known
        query = self._new_query()
        self._queries_by_hash[form_hash % _SHARDS][form_hash] = query
        self._hash[query] = form_hash
        self._first[query] = _NO_CLAUSE
        for literals in clauses:
            self._index_clause(literals, query)
        return query

    def _new_query(self) -> int:
        if self._free:
            return self._free.pop()
        assert self._allocated < len(self._first), "there are never more queries than subscriptions"
        self._allocated += 1
        return self._allocated - 1

    def _literals_of(self, clause: Clause) -> Literals:
        wanted = [2 * self._vocabulary.take(atom) for atom in clause.required]
        unwanted = [2 * self._vocabulary.take(atom) + 1 for atom in clause.excluded]
        return tuple(sorted(wanted + unwanted))

    def _release(self, clauses: list[Literals]) -> None:
        for literals in clauses:
            for literal in literals:
                self._vocabulary.release(literal >> 1)

    def _find_hash(self, clauses: list[Literals]) -> tuple[int, int | None]:
        """Return a free hash for these clauses, or the hash and number of the query that has them."""
        form_hash = hash(repr(clauses)) & _HASH_MASK  # salted per process, so that a client cannot construct collisions
        while (query := self._queries_by_hash[form_hash % _SHARDS].get(form_hash)) is not None:
            if sorted(self._literals(clause) for clause in self._clauses_of(query)) == clauses:
                return form_hash, query
            form_hash = (form_hash + 1) & _HASH_MASK
        return form_hash, None

    def _forget_hash(self, query: int) -> None:
        form_hash = self._hash[query]
        del self._queries_by_hash[form_hash % _SHARDS][form_hash]

    def _clauses_of(self, query: int) -> Iterator[int]:
        clause = max(self._first[query], _NO_CLAUSE)
        while clause:
            yield clause
            clause = self._next[clause]

    def _literals(self, clause: int) -> Literals:
        """Reassemble a clause from its key, its columns and its list of other literals."""
        _, one, other, extra = self._clause_data[clause].tolist()
        literals = [2 * self._key[clause], 2 * self._second_key[clause], one, other]
        if extra:
            literals += self._lists.view(extra).tolist()
        return tuple(sorted(literal for literal in literals if literal != 2 * ALWAYS_TRUE))

    def _index_clause(self, literals: Literals, query: int) -> None:
        clause = self._free_clauses.pop() if self._free_clauses else self._clauses_allocated
        self._clauses_allocated = max(self._clauses_allocated, clause + 1)
        self._next[clause], self._first[query] = self._first[query], clause
        key, second_key = self._keys_for(literals)
        self._key[clause], self._second_key[clause] = key, second_key
        more = [literal for literal in literals if literal not in (2 * key, 2 * second_key)]
        self._truth[[literal for literal in more if literal & 1]] = True
        one, other = (*more, 2 * ALWAYS_TRUE, 2 * ALWAYS_TRUE)[:2]
        extra = self._lists.new() if len(more) > 2 else NO_LIST
        for literal in more[2:]:
            self._lists.append(extra, literal)
            self._extra_literals += 1
        self._clause_data[clause] = query, one, other, extra
        self._position[clause] = self._lists.append(self._list_of(key, second_key), clause)

    def _keys_for(self, literals: Literals) -> tuple[int, int]:
        """Return the one or two positive atoms to index a clause under; `ALWAYS_TRUE` where there is none."""
        wanted = sorted((literal >> 1 for literal in literals if not literal & 1), key=self._vocabulary.uses)
        if not wanted:
            return ALWAYS_TRUE, ALWAYS_TRUE
        clauses = self._clauses_by_atom[wanted[0]]
        if len(wanted) == 1 or not clauses or self._lists.length(clauses) < SINGLE_MAX:
            return wanted[0], ALWAYS_TRUE
        return wanted[0], wanted[1]

    def _list_of(self, key: int, second_key: int) -> int:
        if key == ALWAYS_TRUE:
            return self._negated_only
        if second_key == ALWAYS_TRUE:
            which = self._clauses_by_atom[key] = self._clauses_by_atom[key] or self._lists.new()
            return which
        lists_by_atom = self._clauses_by_pair.setdefault(key, {})
        if second_key not in lists_by_atom:
            lists_by_atom[second_key] = self._lists.new()
        return lists_by_atom[second_key]

    def _unindex_clause(self, clause: int) -> None:
        self._release([self._literals(clause)])
        key, second_key = self._key[clause], self._second_key[clause]
        clause_list = self._list_of(key, second_key)
        moved = self._lists.remove(clause_list, self._position[clause])
        if moved >= 0:
            self._position[moved] = self._position[clause]
        if not self._lists.length(clause_list) and key != ALWAYS_TRUE:
            self._lists.drop(clause_list)
            if second_key == ALWAYS_TRUE:
                self._clauses_by_atom[key] = NO_LIST
            else:
                del self._clauses_by_pair[key][second_key]
                if not self._clauses_by_pair[key]:
                    del self._clauses_by_pair[key]
        if extra := int(self._clause_data[clause, _EXTRA]):
            while self._lists.length(extra):
                self._lists.remove(extra, 0)
                self._extra_literals -= 1
            self._lists.drop(extra)
        self._free_clauses.append(clause)


_NO_QUERIES: Final = np.empty(0, np.int32)


def _maybe_single_atom(form: NormalForm) -> Atom | None:
    """Return the atom if the query consists of it alone."""
    if len(form) == 1 and len(form[0].required) == 1 and not form[0].excluded:
        return next(iter(form[0].required))
    return None


class Vocabulary:
    """Numbers of at most `limit` tags and topic filters used by queries, and the lookup of those that a message satisfies.

    A tag or filter gets a number with the first clause that uses it and loses it with the last. Filters without wildcards are
    found by the topic itself. For filters with wildcards the topic is read level by level, with the set of filter prefixes
    that may still match:

        topic city/7/parking      ""  ->  "city/"  "+/"  ->  "city/7/"  "city/+/"  ->  is "city/+/parking" a filter? "city/+/#"?

    A cell, addressed by the hash of a prefix, has flags: filters continue with a name (1), with + (2) or with # (4). Two
    prefixes that share a cell cost a futile lookup, never a wrong result. A counter per flag has the number of filters; it
    saturates at 255.

    Names are sharded over many small dictionaries, because resizing a large one would stall all threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tags: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self._filters: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self._uses = element_view(column(limit + 1, np.int32))
        self._is_filter = element_view(column(limit + 1, np.uint8))
        self._names: list[NDArray[np.object_]] = []  # arrays, which the garbage collector does not traverse
        self._free: list[int] = []
        self._allocated = 1
        self._wildcards = 0
        cells = 1 << (2 * limit).bit_length()
        self._cell_mask = cells - 1
        self._cells = element_view(column(cells, np.uint8))
        self._counts = {kind: element_view(column(cells, np.uint8)) for kind in (_HAS_NAME, _HAS_PLUS, _HAS_HASH)}

    def __len__(self) -> int:
        return self._allocated - 1 - len(self._free)

    def take(self, atom: Atom) -> int:
        """Add one use of a tag or filter; return its number."""
        name, shards = self._name_of(atom)
        shard = shards[hash(name) & _SHARD_MASK]
        number = shard.get(name)
        if number is None:
            number = shard[name] = self._new(name, is_filter=shards is self._filters)
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Remove one use of a tag or filter, and its name with the last use."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        names, at = self._names[number >> _CHUNK_BITS], number & (_CHUNK - 1)
        name, names[at] = names[at], None
        self._free.append(number)
        shards = self._filters if self._is_filter[number] else self._tags
        del shards[hash(name) & _SHARD_MASK][name]
        if self._is_filter[number] and _has_wildcard(name):
            self._wildcards -= 1
            self._count_prefixes(name, -1)

    def has_room_for(self, atoms: Iterable[Atom]) -> bool:
        """Whether all of these atoms, known and new, fit within the limit."""
        new = 0
        for atom in atoms:
            name, shards = self._name_of(atom)
            new += name not in shards[hash(name) & _SHARD_MASK]
        return len(self) + new <= self._limit

    def uses(self, number: int) -> int:
        """Return the number of clauses that use an atom."""
        return self._uses[number]

    def satisfied_by(self, topic: str, tags: AbstractSet[str]) -> list[int]:
        """Return the numbers of all known tags and filters that match a message with this topic and these tags."""
        found = self._filters_matching(topic)
        for tag in tags:
            number = self._tags[hash(tag) & _SHARD_MASK].get(tag)
            if number is not None:
                found.append(number)
        return found

    def _filters_matching(self, topic: str) -> list[int]:
        if not self._wildcards:
            return self._numbers_of([topic])
        cells, mask = self._cells, self._cell_mask
        *levels, last = topic.split("/")
        names = [topic]
        if topic[0] != "$":
            prefixes = [("", cells[hash("") & mask])]
        elif levels:  # [MQTT-4.7.2-1]: no wildcard at the first level
            first = levels.pop(0) + "/"
            prefixes = [(first, cells[hash(first) & mask])]
        else:
            return self._numbers_of([topic, topic + "/#"])
        for level in levels:
            shorter, prefixes = prefixes, []
            for prefix, cell in shorter:
                if cell & _HAS_HASH:
                    names.append(prefix + "#")
                if cell & _HAS_NAME:
                    one = f"{prefix}{level}/"
                    if cell_after := cells[hash(one) & mask]:
                        prefixes.append((one, cell_after))
                if cell & _HAS_PLUS:
                    one = prefix + "+/"
                    if cell_after := cells[hash(one) & mask]:
                        prefixes.append((one, cell_after))
        for prefix, cell in prefixes:  # a filter may end with the last level, with + or # in its place, or with # after it
            if cell & _HAS_HASH:
                names.append(prefix + "#")
            if cell & _HAS_NAME:
                one = prefix + last
                if one != topic:
                    names.append(one)
                if cells[hash(one + "/") & mask] & _HAS_HASH:
                    names.append(one + "/#")
            if cell & _HAS_PLUS:
                one = prefix + "+"
                names.append(one)
                if cells[hash(one + "/") & mask] & _HAS_HASH:
                    names.append(one + "/#")
        return self._numbers_of(names)

    def _numbers_of(self, names: list[str]) -> list[int]:
        shards = self._filters
        found = []
        for name in names:
            number = shards[hash(name) & _SHARD_MASK].get(name)
            if number is not None:
                found.append(number)
        return found

    def _name_of(self, atom: Atom) -> tuple[str, list[dict[str, int]]]:
        """Return the name of a tag or filter, and the shards for its kind."""
        return (atom.tag, self._tags) if isinstance(atom, HasTag) else (atom.filter, self._filters)

    def _new(self, name: str, *, is_filter: bool) -> int:
        if self._free:
            number = self._free.pop()
        else:
            assert self._allocated <= self._limit, "callers check `has_room_for` first"
            number = self._allocated
            self._allocated += 1
            if number >> _CHUNK_BITS == len(self._names):
                self._names.append(np.empty(_CHUNK, object))
        self._names[number >> _CHUNK_BITS][number & (_CHUNK - 1)] = name
        self._is_filter[number] = is_filter
        if is_filter and _has_wildcard(name):
            self._wildcards += 1
            self._count_prefixes(name, 1)
        return number

    def _count_prefixes(self, name: str, step: int) -> None:
        """Update the counters of each prefix of a filter: whether a name, + or # follows it."""
        prefix = ""
        for level in name.split("/"):
            cell = hash(prefix) & self._cell_mask
            kind = _HAS_PLUS if level == "+" else _HAS_HASH if level == "#" else _HAS_NAME
            counts = self._counts[kind]
            if counts[cell] != _SATURATED:
                counts[cell] += step
                self._cells[cell] = self._cells[cell] | kind if counts[cell] else self._cells[cell] & ~kind
            prefix += level + "/"


def _has_wildcard(name: str) -> bool:
    return "+" in name or name.endswith("#")
