"""Formulas: which of the queries in use does this message make true?

Each different query is kept once, however many subscriptions ask it. Its clauses (`normal_form`) are filed under a key, such
that a message that makes the clause true always leads to it:

    one atom and nothing else     the atom itself, no check needed ("plain": every ordinary MQTT subscription)
    few clauses under the atom    the atom that the fewest clauses name            a & b & !c   ->   b: [.., a & !c, ..]
    many clauses under the atom   the two atoms that the fewest clauses name       a & b & !c   ->   (b, a): [.., !c, ..]
    negated atoms alone           a list that every message is checked against (T13)

What is left of a clause beside its key are two atoms in columns, checked for all clauses found at once, and the rest (seldom)
in a list of its own. `_truth` says for each word (an atom, or its negation) whether the message at hand makes it true.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.matching.lists import NO_LIST, Lists
from milepost.matching.vocabulary import ALWAYS_TRUE, Vocabulary
from milepost.model.queries import Atom, Clause, HasTag, NormalForm, OnTopic, Query, normal_form
from milepost.model.reasons import Malformed, Reason

SINGLE_MAX: Final = 128
"""With so many clauses filed under an atom, further ones that have two atoms are filed under both."""

CLAUSES_A_QUERY: Final = 3
"""Room for clauses: so many to a query, on average."""

_SHARDS: Final = 128
_MARK_MASK: Final = (1 << 60) - 1
_NO_CLAUSE: Final = 0
_REST: Final = 3

Words = tuple[int, ...]
"""A clause as words: twice an atom's number, plus one where the atom must not be true."""

QueryNumbers = NDArray[np.int32]


class Formulas:
    """At most `limit` different queries over a vocabulary of at most `atoms_max` tags and filters."""

    def __init__(self, limit: int, atoms_max: int) -> None:
        clauses_max = CLAUSES_A_QUERY * limit
        self._vocabulary = Vocabulary(atoms_max)
        self._lists = Lists(atoms_max + 2 * clauses_max + 1, 2 * clauses_max)
        # by query
        self._first = numbers_of(column(limit, np.int32))  # its first clause; for a plain one, the atom's number below 0
        self._mark = numbers_of(column(limit, np.uint64))
        self._askers = numbers_of(column(limit, np.int32))
        self._turn = column(limit, np.int32)
        self._marks: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._free: list[int] = []
        self._made = 0
        # by clause
        # side by side in memory: query, one word, another, list of the rest
        self._facts = column(clauses_max + 1, np.int32, 4)
        self._next = numbers_of(column(clauses_max + 1, np.int32))
        self._position = numbers_of(column(clauses_max + 1, np.int32))
        self._key = numbers_of(column(clauses_max + 1, np.int32))
        self._second_key = numbers_of(column(clauses_max + 1, np.int32))
        self._free_clauses: list[int] = []
        self._clauses_made = 1
        self._rest_words = 0
        # by atom
        self._plain = numbers_of(column(atoms_max + 1, np.int32))  # the query that is this atom alone, plus one
        self._single = numbers_of(column(atoms_max + 1, np.int32))
        self._pairs: dict[int, dict[int, int]] = {}
        self._always = self._lists.new()
        self._truth = column(2 * atoms_max + 2, np.bool_)
        self._truth[2 * ALWAYS_TRUE] = True
        self._truth_of = numbers_of(self._truth)

    def __len__(self) -> int:
        return self._made - len(self._free)

    def ask(self, query: Query) -> int:
        """The number of a query that one more subscription asks."""
        form = (Clause(frozenset([query])),) if isinstance(query, HasTag | OnTopic) else normal_form(query)
        self._check_room(form)
        atom = _maybe_plain(form)
        number = self._ask_form(form) if atom is None else self._ask_plain(atom)
        self._askers[number] += 1
        return number

    def drop(self, number: int) -> None:
        """One subscription less asks a query; with the last it is forgotten."""
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
        """Whether a clause of the query has nothing but negated atoms, so that every message must be checked for it."""
        return any(not self._key[clause] for clause in self._clauses_of(number))

    def true_for(self, topic: str, tags: AbstractSet[str]) -> tuple[list[int], QueryNumbers]:
        """The queries that a message makes true: the plain ones, and all others; each once."""
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
        """The queries of those filed clauses that the atoms make true."""
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
        """Refuse a query that there is no room for, before anything has changed."""
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
        """A free mark for these clauses, or the mark and number of the query that has them."""
        mark = hash(repr(clauses)) & _MARK_MASK  # keyed by the process, so that nobody can choose texts that collide
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
        """A clause put together again from its key, its columns and its rest."""
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
        """The one or two wanted atoms to file a clause under; `ALWAYS_TRUE` where there is none."""
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
    """The atom, if the query comes down to it alone."""
    if len(form) == 1 and len(form[0].wanted) == 1 and not form[0].unwanted:
        return next(iter(form[0].wanted))
    return None
