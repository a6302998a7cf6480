"""Index of Boolean queries: find the queries that a message satisfies.

Each distinct query is stored once, for all subscriptions that use it. Its clauses (`normal_form`) are indexed under a key, so
that every message that satisfies a clause leads to it:

    a single atom                 the atom itself, no check needed ("plain": every ordinary MQTT subscription)
    few clauses under the atom    the atom with the fewest clauses                 a & b & !c   ->   b: [.., a & !c, ..]
    many clauses under the atom   the two atoms with the fewest clauses            a & b & !c   ->   (b, a): [.., !c, ..]
    negated atoms only            a list that every message is checked against (T13)

Besides its key, a clause has two atoms in columns, checked for all candidate clauses at once, and rarely a list of further
ones. `_truth` has a flag per word (an atom or its negation): whether the current message satisfies it.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import NO_LIST, Lists, column, numbers_of
from milepost.model.queries import Atom, Clause, HasTag, NormalForm, OnTopic, Query, normal_form
from milepost.model.reasons import Malformed, Reason

SINGLE_MAX: Final = 128
"""Number of clauses under one atom from which further clauses with two atoms are indexed under both."""

CLAUSES_A_QUERY: Final = 3
"""Capacity for clauses: average per query."""

_SHARDS: Final = 128
_MARK_MASK: Final = (1 << 60) - 1
_NO_CLAUSE: Final = 0
_REST: Final = 3

Words = tuple[int, ...]
"""A clause as words: twice an atom's number, plus one if the atom is negated."""

QueryNumbers = NDArray[np.int32]


ALWAYS_TRUE: Final = 0
"""Number of the pseudo-atom that every message satisfies."""

_SHARD_MASK: Final = _SHARDS - 1
_PIECE_BITS: Final = 12
_PIECE: Final = 1 << _PIECE_BITS
_NAME, _PLUS, _HASH = 1, 2, 4
_STUCK: Final = 255


class Formulas:
    """At most `limit` distinct queries over a vocabulary of at most `atoms_max` tags and topic filters."""

    def __init__(self, limit: int, atoms_max: int) -> None:
        clauses_max = CLAUSES_A_QUERY * limit
        self._vocabulary = Vocabulary(atoms_max)
        self._lists = Lists(atoms_max + 2 * clauses_max + 1, 2 * clauses_max)
        # by query
        self._first = numbers_of(column(limit, np.int32))  # its first clause; for a plain query, the negated number of its atom
        self._mark = numbers_of(column(limit, np.uint64))
        self._askers = numbers_of(column(limit, np.int32))
        self._turn = column(limit, np.int32)
        self._marks: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._free: list[int] = []
        self._made = 0
        # by clause
        # side by side in memory: query, first word, second word, list of the other words
        self._facts = column(clauses_max + 1, np.int32, 4)
        self._next = numbers_of(column(clauses_max + 1, np.int32))
        self._position = numbers_of(column(clauses_max + 1, np.int32))
        self._key = numbers_of(column(clauses_max + 1, np.int32))
        self._second_key = numbers_of(column(clauses_max + 1, np.int32))
        self._free_clauses: list[int] = []
        self._clauses_made = 1
        self._rest_words = 0
        # by atom
        self._plain = numbers_of(column(atoms_max + 1, np.int32))  # the plain query of this atom, plus one
        self._single = numbers_of(column(atoms_max + 1, np.int32))
        self._pairs: dict[int, dict[int, int]] = {}
        self._always = self._lists.new()
        self._truth = column(2 * atoms_max + 2, np.bool_)
        self._truth[2 * ALWAYS_TRUE] = True
        self._truth_of = numbers_of(self._truth)

    def __len__(self) -> int:
        return self._made - len(self._free)

    def ask(self, query: Query) -> int:
        """Add one use of a query; return its number."""
        form = (Clause(frozenset([query])),) if isinstance(query, HasTag | OnTopic) else normal_form(query)
        self._check_room(form)
        atom = _maybe_plain(form)
        number = self._ask_form(form) if atom is None else self._ask_plain(atom)
        self._askers[number] += 1
        return number

    def drop(self, number: int) -> None:
        """Remove one use of a query, and the query with the last use."""
        self._askers[number] -= 1
        if self._askers[number]:
            return
        first = self._first[number]
        if first < 0:
            self._plain[-first] = 0
            self._vocabulary.release(-first)
        else:
            self._forget_mark(number)
            for clause in list(self._clauses_of(number)):
                self._unfile(clause)
        self._free.append(number)

    def is_keyless(self, number: int) -> bool:
        """Whether a clause of the query has only negated atoms, so that every message must be checked against it."""
        return any(not self._key[clause] for clause in self._clauses_of(number))

    def true_for(self, topic: str, tags: AbstractSet[str]) -> tuple[list[int], QueryNumbers]:
        """Return the queries that a message satisfies, each once: the plain ones, and all others."""
        atoms = self._vocabulary.true_for(topic, tags)
        plain_of, single_of, pairs = self._plain, self._single, self._pairs
        plain, found = [], []
        for atom in atoms:
            if query := plain_of[atom]:
                plain.append(query - 1)
            if filed := single_of[atom]:
                found.append(filed)
            if partners := pairs.get(atom):
                found += [partners[other] for other in atoms if other in partners]
        if self._lists.length(self._always):
            found.append(self._always)
        return plain, self._check(found, atoms) if found else _NONE

    def _check(self, filed: list[int], atoms: list[int]) -> QueryNumbers:
        """Return the queries of the indexed clauses that the atoms satisfy."""
        clauses = np.concatenate([self._lists.view(which) for which in filed])
        truth, truth_of = self._truth, self._truth_of
        for atom in atoms:
            truth_of[2 * atom], truth_of[2 * atom + 1] = True, False
        queries, one, other, rest = self._facts.take(clauses, axis=0).T
        is_true = truth.take(one)
        is_true &= truth.take(other)
        if self._rest_words:
            for at in np.flatnonzero(is_true & (rest != NO_LIST)).tolist():
                is_true[at] = truth[self._lists.view(int(rest[at]))].all()
        for atom in atoms:
            truth_of[2 * atom], truth_of[2 * atom + 1] = False, True
        return self._each_once(queries[is_true])

    def _each_once(self, queries: QueryNumbers) -> QueryNumbers:
        if queries.size < 2:
            return queries
        turn = np.arange(queries.size, dtype=np.int32)
        self._turn[queries] = turn
        once: QueryNumbers = queries[self._turn[queries] == turn]
        return once

    def _check_room(self, form: NormalForm) -> None:
        """Raise `Malformed` if a query does not fit, before anything has changed."""
        if not self._vocabulary.has_room_for({atom for clause in form for atom in clause.wanted | clause.unwanted}):
            raise Malformed(Reason.VOCABULARY_FULL, f"{len(self._vocabulary)} tags and filters are in use")
        clauses_max = len(self._facts) - 1
        clauses = self._clauses_made - 1 - len(self._free_clauses) + len(form)
        words = self._rest_words + sum(max(0, len(clause.wanted) + len(clause.unwanted) - 2) for clause in form)
        if max(clauses, words) > clauses_max:
            detail = f"there is room for {clauses_max} clauses, and for as many atoms beyond two in a clause"
            raise Malformed(Reason.SUBSCRIPTIONS_FULL, detail)

    def _ask_plain(self, atom: Atom) -> int:
        number = self._vocabulary.take(atom)
        if self._plain[number]:
            self._vocabulary.release(number)
            return self._plain[number] - 1
        query = self._new_query()
        self._plain[number] = query + 1
        self._first[query] = -number
        return query

    def _ask_form(self, form: NormalForm) -> int:
        clauses = sorted(self._words_of(clause) for clause in form)
        mark, known = self._find_mark(clauses)
        if known is not None:
            self._release(clauses)
            return known
        query = self._new_query()
        self._marks[mark % _SHARDS][mark] = query
        self._mark[query] = mark
        self._first[query] = _NO_CLAUSE
        for words in clauses:
            self._file(words, query)
        return query

    def _new_query(self) -> int:
        if self._free:
            return self._free.pop()
        assert self._made < len(self._first), "there are never more queries than subscriptions"
        self._made += 1
        return self._made - 1

    def _words_of(self, clause: Clause) -> Words:
        wanted = [2 * self._vocabulary.take(atom) for atom in clause.wanted]
        unwanted = [2 * self._vocabulary.take(atom) + 1 for atom in clause.unwanted]
        return tuple(sorted(wanted + unwanted))

    def _release(self, clauses: list[Words]) -> None:
        for words in clauses:
            for word in words:
                self._vocabulary.release(word >> 1)

    def _find_mark(self, clauses: list[Words]) -> tuple[int, int | None]:
        """Return a free hash (mark) for these clauses, or the mark and number of the query that has them."""
        mark = hash(repr(clauses)) & _MARK_MASK  # salted per process, so that a client cannot construct collisions
        while (query := self._marks[mark % _SHARDS].get(mark)) is not None:
            if sorted(self._words(clause) for clause in self._clauses_of(query)) == clauses:
                return mark, query
            mark = (mark + 1) & _MARK_MASK
        return mark, None

    def _forget_mark(self, query: int) -> None:
        mark = self._mark[query]
        del self._marks[mark % _SHARDS][mark]

    def _clauses_of(self, query: int) -> Iterator[int]:
        clause = max(self._first[query], _NO_CLAUSE)
        while clause:
            yield clause
            clause = self._next[clause]

    def _words(self, clause: int) -> Words:
        """Reassemble a clause from its key, its columns and its list of other words."""
        _, one, other, rest = self._facts[clause].tolist()
        words = [2 * self._key[clause], 2 * self._second_key[clause], one, other]
        if rest:
            words += self._lists.view(rest).tolist()
        return tuple(sorted(word for word in words if word != 2 * ALWAYS_TRUE))

    def _file(self, words: Words, query: int) -> None:
        clause = self._free_clauses.pop() if self._free_clauses else self._clauses_made
        self._clauses_made = max(self._clauses_made, clause + 1)
        self._next[clause], self._first[query] = self._first[query], clause
        key, second_key = self._keys_for(words)
        self._key[clause], self._second_key[clause] = key, second_key
        more = [word for word in words if word not in (2 * key, 2 * second_key)]
        self._truth[[word for word in more if word & 1]] = True
        one, other = (*more, 2 * ALWAYS_TRUE, 2 * ALWAYS_TRUE)[:2]
        rest = self._lists.new() if len(more) > 2 else NO_LIST
        for word in more[2:]:
            self._lists.append(rest, word)
            self._rest_words += 1
        self._facts[clause] = query, one, other, rest
        self._position[clause] = self._lists.append(self._list_for(key, second_key), clause)

    def _keys_for(self, words: Words) -> tuple[int, int]:
        """Return the one or two positive atoms to index a clause under; `ALWAYS_TRUE` where there is none."""
        wanted = sorted((word >> 1 for word in words if not word & 1), key=self._vocabulary.uses)
        if not wanted:
            return ALWAYS_TRUE, ALWAYS_TRUE
        single = self._single[wanted[0]]
        if len(wanted) == 1 or not single or self._lists.length(single) < SINGLE_MAX:
            return wanted[0], ALWAYS_TRUE
        return wanted[0], wanted[1]

    def _list_for(self, key: int, second_key: int) -> int:
        if key == ALWAYS_TRUE:
            return self._always
        if second_key == ALWAYS_TRUE:
            which = self._single[key] = self._single[key] or self._lists.new()
            return which
        partners = self._pairs.setdefault(key, {})
        if second_key not in partners:
            partners[second_key] = self._lists.new()
        return partners[second_key]

    def _unfile(self, clause: int) -> None:
        self._release([self._words(clause)])
        key, second_key = self._key[clause], self._second_key[clause]
        filed = self._list_for(key, second_key)
        moved = self._lists.remove(filed, self._position[clause])
        if moved >= 0:
            self._position[moved] = self._position[clause]
        if not self._lists.length(filed) and key != ALWAYS_TRUE:
            self._lists.drop(filed)
            if second_key == ALWAYS_TRUE:
                self._single[key] = NO_LIST
            else:
                del self._pairs[key][second_key]
                if not self._pairs[key]:
                    del self._pairs[key]
        if rest := int(self._facts[clause, _REST]):
            while self._lists.length(rest):
                self._lists.remove(rest, 0)
                self._rest_words -= 1
            self._lists.drop(rest)
        self._free_clauses.append(clause)


_NONE: Final = np.empty(0, np.int32)


def _maybe_plain(form: NormalForm) -> Atom | None:
    """Return the atom if the query consists of it alone."""
    if len(form) == 1 and len(form[0].wanted) == 1 and not form[0].unwanted:
        return next(iter(form[0].wanted))
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
        self._uses = numbers_of(column(limit + 1, np.int32))
        self._is_filter = numbers_of(column(limit + 1, np.uint8))
        self._names: list[NDArray[np.object_]] = []  # arrays, which the garbage collector does not traverse
        self._free: list[int] = []
        self._made = 1
        self._wildcards = 0
        cells = 1 << (2 * limit).bit_length()
        self._cell_mask = cells - 1
        self._cells = numbers_of(column(cells, np.uint8))
        self._counts = {kind: numbers_of(column(cells, np.uint8)) for kind in (_NAME, _PLUS, _HASH)}

    def __len__(self) -> int:
        return self._made - 1 - len(self._free)

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
        names, at = self._names[number >> _PIECE_BITS], number & (_PIECE - 1)
        name, names[at] = names[at], None
        self._free.append(number)
        shards = self._filters if self._is_filter[number] else self._tags
        del shards[hash(name) & _SHARD_MASK][name]
        if self._is_filter[number] and _has_wildcard(name):
            self._wildcards -= 1
            self._count_beginnings(name, -1)

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

    def true_for(self, topic: str, tags: AbstractSet[str]) -> list[int]:
        """Return the numbers of all known tags and filters that match a message with this topic and these tags."""
        found = self._filters_passing(topic)
        for tag in tags:
            number = self._tags[hash(tag) & _SHARD_MASK].get(tag)
            if number is not None:
                found.append(number)
        return found

    def _filters_passing(self, topic: str) -> list[int]:
        if not self._wildcards:
            return self._numbers_of([topic])
        cells, mask = self._cells, self._cell_mask
        *levels, last = topic.split("/")
        names = [topic]
        if topic[0] != "$":
            beginnings = [("", cells[hash("") & mask])]
        elif levels:  # [MQTT-4.7.2-1]: no wildcard at the first level
            first = levels.pop(0) + "/"
            beginnings = [(first, cells[hash(first) & mask])]
        else:
            return self._numbers_of([topic, topic + "/#"])
        for level in levels:
            shorter, beginnings = beginnings, []
            for beginning, cell in shorter:
                if cell & _HASH:
                    names.append(beginning + "#")
                if cell & _NAME:
                    one = f"{beginning}{level}/"
                    if cell_after := cells[hash(one) & mask]:
                        beginnings.append((one, cell_after))
                if cell & _PLUS:
                    one = beginning + "+/"
                    if cell_after := cells[hash(one) & mask]:
                        beginnings.append((one, cell_after))
        for beginning, cell in beginnings:  # a filter may end with the last level, with + or # in its place, or with # after it
            if cell & _HASH:
                names.append(beginning + "#")
            if cell & _NAME:
                one = beginning + last
                if one != topic:
                    names.append(one)
                if cells[hash(one + "/") & mask] & _HASH:
                    names.append(one + "/#")
            if cell & _PLUS:
                one = beginning + "+"
                names.append(one)
                if cells[hash(one + "/") & mask] & _HASH:
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
            assert self._made <= self._limit, "who takes a name has asked whether there is room"
            number = self._made
            self._made += 1
            if number >> _PIECE_BITS == len(self._names):
                self._names.append(np.empty(_PIECE, object))
        self._names[number >> _PIECE_BITS][number & (_PIECE - 1)] = name
        self._is_filter[number] = is_filter
        if is_filter and _has_wildcard(name):
            self._wildcards += 1
            self._count_beginnings(name, 1)
        return number

    def _count_beginnings(self, name: str, step: int) -> None:
        """Update the counters of each prefix of a filter: whether a name, + or # follows it."""
        beginning = ""
        for level in name.split("/"):
            cell = hash(beginning) & self._cell_mask
            kind = _PLUS if level == "+" else _HASH if level == "#" else _NAME
            counts = self._counts[kind]
            if counts[cell] != _STUCK:
                counts[cell] += step
                self._cells[cell] = self._cells[cell] | kind if counts[cell] else self._cells[cell] & ~kind
            beginning += level + "/"


def _has_wildcard(name: str) -> bool:
    return "+" in name or name.endswith("#")
