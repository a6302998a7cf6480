import subprocess
from pathlib import Path

import pytest

from house.rules.language import THIS_RULE, commit_faults, docstring_faults, name_faults, parameter_faults, repeated_classes
from house.rules.tree import ROOT, Plant


def test_classes_and_modules_are_named_by_nouns() -> None:
    assert name_faults(ROOT) == []


def test_a_public_class_name_has_one_meaning() -> None:
    assert repeated_classes(ROOT) == []


def test_sentences_of_docstrings_have_nouns_for_subjects() -> None:
    assert docstring_faults(ROOT) == []


def test_names_between_asterisks_are_parameters() -> None:
    assert parameter_faults(ROOT) == []


def test_commit_subjects_are_short() -> None:
    assert commit_faults(ROOT) == []


@pytest.mark.parametrize("name", ["Said", "_Wanted", "ToTold", "KeptSession", "Who"])
def test_a_class_named_by_a_pronoun_is_found(plant: Plant, name: str) -> None:
    root = plant({"src/milepost/broker/session.py": f"class {name}: ..."})
    assert name_faults(root) == [f"src/milepost/broker/session.py:1 the class name {name} does not say what it holds"]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("src/milepost/told.py", "the module name told does not say what it holds"),
        ("tests/unit/who_is_near.py", "the module name who_is_near does not say what it holds"),
        ("src/milepost/handing.py", "the module name handing is a verb; name the thing that it holds"),
        ("bench/running.py", "the module name running is a verb; name the thing that it holds"),
    ],
)
def test_a_module_named_by_a_pronoun_or_a_verb_is_found(plant: Plant, path: str, fault: str) -> None:
    assert name_faults(plant({path: ""})) == [f"{path}: {fault}"]


def test_nouns_of_the_field_pass(plant: Plant) -> None:
    names = ("broker/routing.py", "broker/retained_store.py", "matching/points.py", "model/time_windows.py")
    assert name_faults(plant({f"src/milepost/{name}": "class TopicRoute: ...\nclass HTTPReply: ..." for name in names})) == []


def test_a_class_name_in_two_modules_is_found(plant: Plant) -> None:
    root = plant(
        {
            "src/milepost/broker/a.py": "class Edge: ...\nclass _Private: ...\nclass Session:\n    class Edge: ...",
            "src/milepost/client/b.py": "class Edge: ...\nclass _Private: ...",
            "src/milepost_experiments/c.py": "class Session: ...",
        }
    )
    assert repeated_classes(root) == ["Edge is a class of src/milepost/broker/a.py, src/milepost/client/b.py"]


@pytest.mark.parametrize(
    "text",
    [
        "What a step does, and when.",
        "Who is near a place.",
        "Records of the log; who reads them later gets them then.",
        "Send the alert to who is inside.",
        "Return what is asked of the edge.",
        "The client is told the reason.",
        "Nobody reads it.",
        "So many incidents an endpoint may have.",
    ],
)
@pytest.mark.parametrize("form", ['"""{}"""', 'def f():\n    """{}"""', 'class A:\n    x = 1\n    """{}"""'])
def test_a_sentence_without_a_noun_for_a_subject_is_found(plant: Plant, form: str, text: str) -> None:
    assert len(docstring_faults(plant({"src/milepost/a.py": form.format(text)}))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Return the sessions inside *area*, by their last report.",
        "Maximum incidents per handover.",
        "Find the user who opened the session, and what to do next.",
        "Return the number, the name and what exactly was wrong.",
        "The order is the same, whatever the file says.",
        "So nothing is acknowledged before it is stored.",
    ],
)
def test_plain_english_passes(plant: Plant, text: str) -> None:
    assert docstring_faults(plant({"src/milepost/a.py": f'X = 1\n"""{text}"""\nprint("nobody")'})) == []


@pytest.mark.parametrize("head", ["def f(task):", "async def f(self, *, task=None):", "def f(*tasks, **options):"])
def test_a_name_between_asterisks_that_is_no_parameter_is_found(plant: Plant, head: str) -> None:
    root = plant({"src/milepost/a.py": f'{head}\n    """Run *errand* in a thread."""'})
    assert parameter_faults(root) == ["src/milepost/a.py:1 *errand* is not a parameter of f"]


def test_parameters_and_other_asterisks_pass(plant: Plant) -> None:
    text = "Run *a*, *b*, *c*, *d* and *e*; 2 * x * y, **bold**, *Two words* and `*args`."
    root = plant({"src/milepost/a.py": f'X = 1\n"""*none*"""\ndef f(a, /, b, *c, d, **e):\n    """{text}"""'})
    assert parameter_faults(root) == []


def commit(root: Path, subject: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "add", "."], cwd=root, check=True, capture_output=True)
    subprocess.run(["git", *identity, "commit", "--allow-empty", "-m", subject], cwd=root, check=True, capture_output=True)


def test_a_long_commit_subject_is_found_from_the_commit_of_the_rule_on(plant: Plant) -> None:
    root = plant({"README.md": "a"})
    subprocess.run(["git", "init"], cwd=root, check=True, capture_output=True)
    commit(root, "x" * 100)
    assert commit_faults(root) == []
    plant({THIS_RULE: ""})
    commit(root, "y" * 73)
    commit(root, "z" * 72)
    (fault,) = commit_faults(root)
    assert fault.endswith("has a subject of 73 characters, 72 are allowed: " + "y" * 73)


def test_a_tree_without_a_git_history_has_no_commits_to_check(plant: Plant) -> None:
    assert commit_faults(plant({THIS_RULE: ""})) == []
