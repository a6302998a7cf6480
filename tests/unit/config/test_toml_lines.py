import pytest

from milepost.config.toml_reader import KeyPath, Lines

TEXT = '''top = 1
a.b = 2

[ mqtt ]  # comment
"receive_max" = 3
long = """
fake = 1
[fake]
"""
[[mqtt.listen]]
address = "x"
[[mqtt.listen]]
address = "y"
[mqtt.listen.deep]
key = 1
'''


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("top",), 1),
        (("a", "b"), 2),
        (("mqtt",), 4),
        (("mqtt", "receive_max"), 5),
        (("mqtt", "long"), 6),
        (("mqtt", "listen", 0), 10),
        (("mqtt", "listen", 0, "address"), 11),
        (("mqtt", "listen", 1, "address"), 13),
        (("mqtt", "listen", 1, "deep", "key"), 15),
        (("mqtt", "long", "inside"), 6),  # the nearest around it
        (("fake",), None),
        ((), None),
    ],
)
def test_a_key_path_has_the_line_on_which_it_begins(where: KeyPath, line: int | None) -> None:
    assert Lines(TEXT).maybe_line(where) == line
