"""Settings of Spark: the user's take precedence, unless results depend on them."""

from itertools import pairwise

import pytest

from milepost.cli.main import main
from milepost.config.errors import UsageFault
from milepost.config.settings import Settings, settings_from
from milepost.pipelines.spark_settings import DEFAULTS, REQUIRED, check_spark_settings, spark_settings_from, with_defaults
from milepost.runtime.pipelines import local_master, submit_line
from parts import ROOT

UI = "spark.ui.enabled"


def read(table: str) -> Settings:
    return settings_from(f'[site]\nname = "north"\n{table}', source="milepost.toml", folder=ROOT)


def test_users_win_over_defaults_and_required_settings_stay() -> None:
    found = with_defaults({UI: "true", "spark.sql.session.timeZone": "utc"})
    assert found[UI] == "true"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert set(found) == {*DEFAULTS, *REQUIRED}
    assert not set(DEFAULTS) & set(REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_another_value_of_a_required_setting_is_refused_with_the_reason(name: str) -> None:
    check_spark_settings({name: REQUIRED[name].value})
    with pytest.raises(ValueError, match="must be") as refused:
        check_spark_settings({name: "other"})
    assert REQUIRED[name].reason in str(refused.value)


@pytest.mark.parametrize(("text", "fault"), [("spark.ui.enabled", "has no value"), ("ui.enabled=true", "names begin with")])
def test_an_option_that_is_no_setting_of_spark_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        spark_settings_from([text])


def test_a_value_may_contain_an_equals_sign() -> None:
    assert spark_settings_from(["spark.driver.extraJavaOptions=-Da=b"]) == {"spark.driver.extraJavaOptions": "-Da=b"}


def test_the_settings_file_has_them_as_a_table() -> None:
    assert read('[pipelines.spark]\n"spark.ui.enabled" = "true"').pipelines.spark == {UI: "true"}


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ('"spark.sql.ansi.enabled" = "true"', r'line 3: \[pipelines\] spark: "spark.sql.ansi.enabled" must be "false"'),
        ("spark.ui.enabled = true", r"line 3: \[pipelines.spark\] spark is a table: put the dotted name in quotes"),
        ('"spark.ui.enabled" = true', r"line 3: \[pipelines.spark\] spark.ui.enabled is true, expected text"),
    ],
)
def test_a_wrong_table_is_a_fault_with_its_line(table: str, fault: str) -> None:
    with pytest.raises(UsageFault, match=fault):
        read(f"[pipelines.spark]\n{table}")


def test_the_command_refuses_a_setting_on_which_results_depend(capsys: pytest.CaptureFixture[str]) -> None:
    conf = ["--conf", "spark.sql.session.timeZone=Europe/Berlin"]
    assert main(["pipeline", "search", "--archive", str(ROOT), *conf]) == 2
    assert 'milepost: --conf: "spark.sql.session.timeZone" must be "UTC"' in capsys.readouterr().err


def test_threads_are_as_many_as_tasks_or_as_chosen() -> None:
    assert local_master("local[5]", 5) == "local[5]"
    with pytest.raises(ValueError, match="6 simultaneous tasks"):
        local_master("local[5]", 6)
    with pytest.raises(ValueError, match="pipeline submit"):
        local_master("spark://10.0.0.1:7077", 1)


def test_a_submitted_process_gets_the_users_settings_and_leaves_other_defaults_to_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr("milepost.runtime.pipelines.kafka_jars", lambda **_: [])
    folder = tmp_path_factory.mktemp("submit")
    settings = read(f'[pipelines]\nfolder = "{folder}"\npartitions = 3\n[pipelines.spark]\n"spark.executor.cores" = "1"')
    conf, more = {"spark.executor.cores": "2"}, ["--conf", "spark.task.cpus=1"]
    line = submit_line(settings, folder / "m.toml", ["hazards"], master="yarn", conf=conf, more=more)
    given = [value for option, value in pairwise(line) if option == "--conf"]
    assert "spark.executor.cores=2" in given
    assert "spark.executor.cores=1" not in given
    assert "spark.sql.shuffle.partitions=3" in given
    assert not any(one.startswith(UI) for one in given)
    assert given[-1] == "spark.task.cpus=1", "options of spark-submit come last, where they win"
