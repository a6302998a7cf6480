from pathlib import Path

import pytest

from milepost.broker.limits import Limits, SlowPolicy
from milepost.config.errors import UsageFault
from milepost.config.log_settings import Format, Level
from milepost.config.settings import AllLimits, Listener, PayloadSetting, PriorityRule, Settings, Transport, settings_from
from milepost.listeners.limits import MqttLimits
from milepost.model.durability import Durability
from milepost.model.priorities import Priority
from milepost.vetting.access import Rule, Verbs


def read(text: str, folder: str = "") -> Settings:
    return settings_from(text, source="m.toml", folder=Path(folder))


def test_an_empty_file_gives_the_defaults() -> None:
    assert read("") == Settings()


def test_every_kind_of_value_is_read() -> None:
    settings = read("""
        storage.durability = "power loss"
        [edge]
        name = "north"
        [mqtt]
        receive_max = 7
        [[mqtt.listen]]
        address = "0.0.0.0:1883"
        [[mqtt.listen]]
        address = "[::]:9001"
        transport = "ws"
        [limits]
        sessions_max = 5
        when_slow = "disconnect"
        connections_max = 3
        [[access.rules]]
        allow = false
        verbs = "publish"
        topics = "a/#"
        user = "ada"
        [[rules.payload]]
        topic = "a/+"
        json = true
        [[rules.priority]]
        topic = "b"
        class = "emergency"
        [log]
        level = "debug"
        format = "json"
    """)
    assert settings.storage.durability is Durability.POWER_LOSS
    assert (settings.edge.name, settings.mqtt.receive_max) == ("north", 7)
    assert settings.mqtt.listen == (Listener("0.0.0.0:1883"), Listener("[::]:9001", Transport.WS))
    limits = Limits(sessions_max=5, when_slow=SlowPolicy.DISCONNECT)
    assert settings.limits == AllLimits(limits, MqttLimits(connections_max=3))
    assert settings.access.rules == (Rule(False, Verbs.PUBLISH, "a/#", user="ada"),)
    assert settings.rules.payload == (PayloadSetting("a/+", json=True),)
    assert settings.rules.priority == (PriorityRule("b", Priority.EMERGENCY),)
    assert (settings.log.level, settings.log.line_format) == (Level.DEBUG, Format.JSON)


def test_relative_paths_start_from_the_folder_of_the_file() -> None:
    settings = read('[access]\nusers = "users"\n[[rules.payload]]\ntopic = "a"\nschema = "/s.json"', folder="/etc/milepost")
    assert settings.access.users == "/etc/milepost/users"
    assert settings.edge.data == "/etc/milepost/data/edge"
    assert settings.rules.payload[0].schema == "/s.json"
    assert settings.mqtt.listen[0].certificate == ""


def test_a_payload_rule_is_what_vetting_takes() -> None:
    settings = read('[[rules.payload]]\ntopic = "a"\nschema = "s.json"\n[[rules.payload]]\ntopic = "b"')
    assert [(rule.rule.topics, rule.rule.schema) for rule in settings.rules.payload] == [("a", "s.json"), ("b", None)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[edgy]", "m.toml, line 1: the file has no key 'edgy'; did you mean 'edge'?"),
        ("\n[mqtt]\nrecieve_max = 3", "m.toml, line 3: [mqtt] has no key 'recieve_max'; did you mean 'receive_max'?"),
        ("[limits]\nzzz = 3", "m.toml, line 2: [limits] has no key 'zzz'; known are sessions_max, "),
        (
            "[[mqtt.listen]]\n[[mqtt.listen]]\n\nadress = '1'",
            "m.toml, line 4: [[mqtt.listen]] number 2 has no key 'adress'; did you mean 'address'?",
        ),
        (
            "[mqtt]\nreceive_max = '20'",
            'm.toml, line 2: [mqtt] receive_max is "20" (text), expected a whole number of at least 1 and at most 65535',
        ),
        ("[mqtt]\nreceive_max = 0", "line 2: [mqtt] receive_max is 0 (a whole number), expected a whole number of at least 1"),
        ("[mqtt]\nreceive_max = true", "receive_max is true, expected a whole number"),
        ("[mqtt]\nreceive_max = 2.0", "receive_max is 2.0 (a number), expected a whole number"),
        ("[limits]\nsessions_max = -1", "[limits] sessions_max is -1 (a whole number), expected a whole number of at least 0"),
        ("[limits]\nsessions_max = 9223372036854775808", "sessions_max is 9223372036854775808"),
        ("[limits]\nconnections_max = 0", "m.toml, line 1: [limits]: connections_max is 0, which would let nothing through"),
        ("[limits]\nbytes_burst = 0", "[limits]: bytes_burst is 0"),
        ("[storage]\ndurability = 'all'", 'durability is "all" (text), expected "nothing" or "process crash" or "power loss"'),
        ("[storage]\nsurvives = 1", "durability is 1 (a whole number), expected"),
        ("[edge]\nname = 1979-05-27", "name is 1979-05-27 (a date or time), expected text"),
        ("[edge]\nname = ''", "[edge]: name '' is part of topics"),
        ("[edge]\ndata = ''", "[edge]: data is empty"),
        ("edge = 3", "the file edge is 3 (a whole number), expected a table"),
        ("[mqtt]\nlisten = {}", "listen is a table, expected an array of tables"),
        ("[mqtt]\nlisten = []", "[mqtt]: listen is empty"),
        ("[mqtt]\nlisten = [{address = 'x'}]", "m.toml, line 2: [[mqtt.listen]] number 1: address 'x' is not HOST:PORT"),
        (
            "[[mqtt.listen]]\ntransport = 'tls'",
            'm.toml, line 1: [[mqtt.listen]] number 1: transport "tls" needs certificate and key',
        ),
        ("[[mqtt.listen]]\ncertificate = 'c'", 'transport "tcp" uses no certificate; did you mean "tls"?'),
        ("[[mqtt.listen]]\ntransport = 'ws'\nkey = 'c'", 'did you mean "wss"?'),
        ("[[mqtt.listen]]\ncertificate_is_user = true", "certificate_is_user needs client_ca"),
        ("[[mqtt.listen]]\n[[mqtt.listen]]", "two listeners have the address 127.0.0.1:1883"),
        ("[http]\naddress = '9464'", "[http]: address '9464' is not HOST:PORT"),
        ("[[rules.priority]]\ntopic = 'a'", "[[rules.priority]] number 1 lacks class, "),
        ("[[rules.priority]]\ntopic = 'a#'\nclass = 'safety'", "[[rules.priority]] number 1: 123 TOPIC_WILDCARD"),
        ("[[access.rules]]\nallow = true\nverbs = 'read'\ntopics = 'a'", 'verbs is "read" (text), expected "publish" or'),
        ("x = ", "m.toml: not TOML: Invalid value"),
    ],
)
def test_a_fault_says_where_and_what(text: str, complaint: str) -> None:
    with pytest.raises(UsageFault) as caught:
        read(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_listeners_may_let_the_system_choose_their_ports() -> None:
    assert len(read('[[mqtt.listen]]\naddress = "[::1]:0"\n[[mqtt.listen]]\naddress = "[::1]:0"').mqtt.listen) == 2


def test_no_limit_on_a_rate_needs_no_burst() -> None:
    assert read("[limits]\nbytes_per_s = 0\nbytes_burst = 0").limits.door.bytes_per_s == 0
