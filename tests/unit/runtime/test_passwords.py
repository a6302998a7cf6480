import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.config.errors import UsageFault
from milepost.runtime import passwords
from milepost.runtime.passwords import PasswordHash, Pbkdf2, Scrypt, Users, check_name, users_from

# Made by mosquitto_passwd 2.0: the password is "secret".
MOSQUITTO = "ada:$7$101$Pfo4zQuNlA/r0lSg$If5cGEhoCUVEv1+7pYhI3wid6Q3acYTe3YKxz1+d+x1Y+8Pk0BHkUmj0FJqOTTPK1rS6sr9/wLRazHdncdDoJg=="
# RFC 7914, section 12, third vector: "pleaseletmein" with the salt "SodiumChloride".
RFC_7914 = (
    "bob:$scrypt$n=16384,r=8,p=1$U29kaXVtQ2hsb3JpZGU=$"
    "cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofLVQylVYT8Pz2LUlwUkKpr55h6F3A1lHkDfzwF7RVdYhw=="
)
CHEAP = "eve:$scrypt$n=2,r=1,p=1$AAAA$"


def cheap(password: bytes) -> PasswordHash:
    return PasswordHash(Scrypt(2, 1, 1), b"salt", Scrypt(2, 1, 1).hash(password, b"salt", 32))


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that are hashed from now on."""
    seen: list[bytes] = []
    real = Scrypt.hash

    def hashed(way: Scrypt, password: bytes, salt: bytes, size: int) -> bytes:
        seen.append(password)
        return real(way, password, salt, size)

    monkeypatch.setattr(passwords.Scrypt, "hash", hashed)
    return seen


@pytest.mark.parametrize(("line", "name", "password"), [(MOSQUITTO, "ada", b"secret"), (RFC_7914, "bob", b"pleaseletmein")])
def test_hashes_of_mosquitto_and_rfc_7914_are_accepted(line: str, name: str, password: bytes) -> None:
    users = Users(users_from(line, source="users"))
    assert users.check(name, password)
    assert not users.check(name, password + b"x")
    assert not users.check(name, b"")
    assert not users.check("nobody", password)


def test_comments_empty_lines_and_crlf_are_skipped() -> None:
    found = users_from(f"# people\n\n{MOSQUITTO}\r\n   \n{RFC_7914}", source="users")
    assert list(found) == ["ada", "bob"]
    assert isinstance(found["ada"].algorithm, Pbkdf2)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "ada:secret",
            "users, line 2: the password of 'ada' is not hashed; remove the line, then run: milepost passwd users ada",
        ),
        ("ada", "is not hashed"),
        ("ada:$6$c2FsdA==$aGFzaA==", "has an unknown hash type ($6$)"),
        ("ada:$7$0$c2FsdA==$aGFzaA==", "has a parameter '0'"),
        ("ada:$7$²$c2FsdA==$aGFzaA==", "has a parameter '²'"),
        ("ada:$7$101$c2FsdA==$", "is truncated or damaged"),
        ("ada:$7$101$c2FsdA==$a", "is truncated or damaged"),
        ("ada:$scrypt$n=3,r=8,p=1$c2FsdA==$aGFzaA==", "an n that is not a power of two"),
        ("ada:$scrypt$n=2097152,r=8,p=1$c2FsdA==$aGFzaA==", "need too much memory"),
        ("ada:$scrypt$n=16384,r=8$c2FsdA==$aGFzaA==", "lacks one of the parameters n, r and p"),
        (":$7$101$c2FsdA==$aGFzaA==", "no user name"),
        (MOSQUITTO + "\n" + MOSQUITTO, "users, line 3: a second line for 'ada'"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(line: str, complaint: str) -> None:
    with pytest.raises(UsageFault) as caught:
        users_from(f"\n{line}", source="users")
    assert complaint in str(caught.value)


@given(st.text(max_size=60), st.sampled_from(["", "ada:", "ada:$7$", "ada:$scrypt$", CHEAP]))
def test_any_text_is_read_or_refused(text: str, before: str) -> None:
    try:
        found = users_from(before + text, source="users")
    except UsageFault:
        return
    assert all(isinstance(one, PasswordHash) for one in found.values())


def test_a_correct_password_is_hashed_once_a_wrong_one_every_time(hashes: list[bytes]) -> None:
    users = Users({"ada": cheap(b"secret")})
    hashes.clear()
    assert [users.check("ada", word) for word in (b"secret", b"secret", b"wrong", b"wrong")] == [True, True, False, False]
    assert hashes == [b"secret", b"wrong", b"wrong"]


def test_an_unknown_user_costs_as_much_as_a_known_one(hashes: list[bytes]) -> None:
    users = Users({"ada": cheap(b"secret")})
    hashes.clear()
    assert not users.check("nobody", b"secret")
    assert hashes == [b"secret"]
    assert users._decoy.algorithm == Scrypt(2, 1, 1)
    assert Users({})._decoy.algorithm == Scrypt()


def test_users_end_when_they_are_removed_or_their_password_changes() -> None:
    hashes = {"ada": cheap(b"a"), "bob": cheap(b"b"), "eve": cheap(b"e")}
    users = Users(hashes)
    assert users.names == {"ada", "bob", "eve"}
    assert users.ended_by(Users({**hashes})) == frozenset()
    assert users.ended_by(Users({"ada": hashes["ada"], "bob": cheap(b"other"), "new": cheap(b"n")})) == {"bob", "eve"}
    assert users.ended_by(None) == users.names


def test_a_cached_password_belongs_to_one_user() -> None:
    users = Users({"ab": cheap(b"c"), "a": cheap(b"x")})
    assert users.check("ab", b"c")
    assert not users.check("a", b"bc")
    assert not users.check("ab", b"")


def test_the_cache_of_correct_passwords_is_limited(hashes: list[bytes]) -> None:
    users = Users({name: cheap(b"x") for name in "abc"}, cached_max=2)
    hashes.clear()
    for name in "abcca":
        assert users.check(name, b"x")
    assert len(hashes) == 4  # a was evicted by c
    assert len(users) == 3


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "#a", " a", "a ", "\ud800", "x" * 1025])
def test_a_name_that_cannot_be_written_to_the_file_is_refused(name: str) -> None:
    with pytest.raises(UsageFault, match="user name"):
        check_name(name)


@pytest.mark.parametrize("name", ["ada", "ada@example", "straße", "a b", "truck/17"])
def test_other_names_are_accepted(name: str) -> None:
    check_name(name)
