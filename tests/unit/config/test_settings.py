from pathlib import Path

import pytest

from milepost.broker.limits import BrokerLimits, SlowPolicy
from milepost.config.errors import UsageFault
from milepost.config.log_format import Format, Level
from milepost.config.settings import (
    AllLimits,
    ListenerSettings,
    PayloadRuleSettings,
    PriorityRule,
    Settings,
    Transport,
    check_files,
    check_open_listeners,
    settings_from,
)
from milepost.listeners.limits import MqttLimits
from milepost.model.durability import Durability
from milepost.model.priorities import Priority
from milepost.vetting.access import AccessAction, AccessRule


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
        slow_consumer = "disconnect"
        connections_max = 3
        [[access.rules]]
        allow = false
        action = "publish"
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
    assert settings.mqtt.listen == (ListenerSettings("0.0.0.0:1883"), ListenerSettings("[::]:9001", Transport.WS))
    limits = BrokerLimits(sessions_max=5, slow_consumer=SlowPolicy.DISCONNECT)
    assert settings.limits == AllLimits(limits, MqttLimits(connections_max=3))
    assert settings.access.rules == (AccessRule(False, AccessAction.PUBLISH, "a/#", user="ada"),)
    assert settings.rules.payload == (PayloadRuleSettings("a/+", json=True),)
    assert settings.rules.priority == (PriorityRule("b", Priority.EMERGENCY),)
    assert (settings.log.level, settings.log.line_format) == (Level.DEBUG, Format.JSON)


def test_relative_paths_start_at_the_folder_of_the_file() -> None:
    settings = read('[access]\nusers = "users"\n[[rules.payload]]\ntopic = "a"\nschema = "/s.json"', folder="/etc/milepost")
    assert settings.access.users == "/etc/milepost/users"
    assert settings.edge.data == "/etc/milepost/data/edge"
    assert settings.rules.payload[0].schema == "/s.json"
    assert settings.mqtt.listen[0].certificate == ""


def test_payload_rules_are_converted_for_admission() -> None:
    settings = read('[[rules.payload]]\ntopic = "a"\nschema = "s.json"\n[[rules.payload]]\ntopic = "b"')
    assert [(rule.rule.topics, rule.rule.schema) for rule in settings.rules.payload] == [("a", "s.json"), ("b", None)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[edgy]", "m.toml, line 1: the file has no key 'edgy'; did you mean 'edge'?"),
        ("\n[mqtt]\nrecieve_max = 3", "m.toml, line 3: [mqtt] has no key 'recieve_max'; did you mean 'receive_max'?"),
        ("[limits]\nzzz = 3", "m.toml, line 2: [limits] has no key 'zzz'; known keys: sessions_max, "),
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
        ("[limits]\nconnections_max = 0", "m.toml, line 2: [limits] connections_max is 0, which would refuse everything"),
        ("[limits]\nbytes_burst = 0", "line 2: [limits] bytes_burst is 0"),
        ("[storage]\ndurability = 'all'", 'durability is "all" (text), expected "none" or "process crash" or "power loss"'),
        ("[storage]\ndurability = 1", "durability is 1 (a whole number), expected"),
        ("[edge]\nname = 1979-05-27", "name is 1979-05-27 (a date or time), expected text"),
        ("[edge]\nname = ''", "line 2: [edge] name '' is not valid"),
        ("[edge]\ndata = ''", "line 2: [edge] data is empty"),
        ("edge = 3", "the file edge is 3 (a whole number), expected a table"),
        ("[mqtt]\nlisten = {}", "listen is a table, expected an array of tables"),
        ("[mqtt]\nlisten = []", "line 2: [mqtt] listen is empty"),
        ("[mqtt]\nlisten = [{address = 'x'}]", "m.toml, line 2: [[mqtt.listen]] number 1 address 'x' is not HOST:PORT"),
        (
            "[[mqtt.listen]]\ntransport = 'tls'",
            'm.toml, line 2: [[mqtt.listen]] number 1 transport "tls" needs certificate and key',
        ),
        ("[[mqtt.listen]]\ncertificate = 'c'", 'transport "tcp" uses no certificate; did you mean "tls"?'),
        ("[[mqtt.listen]]\ntransport = 'ws'\nkey = 'c'", 'did you mean "wss"?'),
        ("[[mqtt.listen]]\ncertificate_is_user = true", "certificate_is_user needs client_ca"),
        ("[[mqtt.listen]]\n[[mqtt.listen]]", "two listeners have the address 127.0.0.1:1883"),
        ("[http]\naddress = '9464'", "line 2: [http] address '9464' is not HOST:PORT"),
        ("[[rules.priority]]\ntopic = 'a'", "[[rules.priority]] number 1 needs class, "),
        ("[[rules.priority]]\ntopic = 'a#'\nclass = 'safety'", "line 2: [[rules.priority]] number 1 topic: 123 TOPIC_WILDCARD"),
        ("[[access.rules]]\nallow = true\naction = 'read'\ntopics = 'a'", 'action is "read" (text), expected "publish" or'),
        (
            "[edge]\nname = 'north'\ncoverage = 'cirle 40.76,-111.89 5000'",
            "m.toml, line 3: [edge] coverage is not a valid area: ",
        ),
        (
            "[edge]\ncoverage = 'circle -111.891,40.7608 5000'",
            "line 2: [edge] coverage is not a valid area: latitude is -111.891: are latitude and longitude swapped?",
        ),
        ("[pipelines]\nhttp = '9465'", "line 2: [pipelines] http: address '9465' is not HOST:PORT"),
        ("[pipelines]\ntopics = ['a', 'b#']", "line 2: [pipelines] topics: 123 TOPIC_WILDCARD"),
        ("[site]\nname = 'a'\nlog = 'kafka'", 'line 3: [site] log = "kafka" needs address'),
        ("[site]\nname = 'a'\nhandover_timeout_s = 4000", "line 3: [site] handover_timeout_s is 4000.0, not in 0..3600"),
        ("[edge]\nname = 'a b'\n[site]\nname = 's'", "line 2: [edge] name: 'a b' is not a valid name: "),
        ("[site]\nname = 's'\n[vetting]\nreputation = 'r'", "line 4: [vetting] reputation applies to an edge without a site"),
        ("x = ", "m.toml: not TOML: Invalid value"),
    ],
)
def test_a_fault_names_file_line_table_and_key(text: str, complaint: str) -> None:
    with pytest.raises(UsageFault) as caught:
        read(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_listeners_may_use_port_0() -> None:
    assert len(read('[[mqtt.listen]]\naddress = "[::1]:0"\n[[mqtt.listen]]\naddress = "[::1]:0"').mqtt.listen) == 2


def test_an_unlimited_rate_needs_no_burst() -> None:
    assert read("[limits]\nbytes_per_s = 0\nbytes_burst = 0").limits.mqtt.bytes_per_s == 0


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[trust]\nca = "gone"', "[trust] ca"),
        ('[trust]\ncertificate = "gone"', "[trust] certificate"),
        ('[trust]\nkey = "gone"', "[trust] key"),
        ('[access]\nusers = "gone"', "[access] users"),
        ('[vetting]\nreputation = "gone"', "[vetting] reputation"),
        ('[[rules.payload]]\ntopic = "a/+"\nschema = "gone"', "[[rules.payload]] a/+ schema"),
        (
            '[[mqtt.listen]]\naddress = "h:1"\ntransport = "tls"\ncertificate = "gone"\nkey = "gone"',
            "[[mqtt.listen]] h:1 certificate",
        ),
    ],
)
def test_a_missing_file_is_reported_with_the_key_that_names_it(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(UsageFault) as caught:
        check_files(read(text, folder=str(tmp_path)))
    assert str(caught.value) == f"{key}: {tmp_path}/gone does not exist: correct the path, or create the file"


@pytest.mark.parametrize("key", ["revoked", "revoked_signers"])
def test_a_missing_revocation_list_is_to_be_copied_from_the_authority(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageFault) as caught:
        check_files(read(f'[trust]\n{key} = "gone"', folder=str(tmp_path)))
    remedy = "correct the path, or copy it from the folder of the certificate authority"
    assert str(caught.value) == f"[trust] {key}: {tmp_path}/gone does not exist: {remedy}"


OPEN = '[[mqtt.listen]]\naddress = "0.0.0.0:1883"\n'
TLS = 'transport = "tls"\ncertificate = "c"\nkey = "k"\n'
PLAIN_UDP = '[udp]\naddress = "[::]:4242"\nencryption = "none"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (OPEN, "[[mqtt.listen]] 0.0.0.0:1883"),
        (OPEN + TLS, "[[mqtt.listen]] 0.0.0.0:1883"),
        ('[[mqtt.listen]]\naddress = "127.0.0.1:1883"\n' + OPEN, "[[mqtt.listen]] 0.0.0.0:1883"),
        (PLAIN_UDP, "[udp] address [::]:4242"),
        (PLAIN_UDP + '[access]\nusers = "users"\n', "[udp] address [::]:4242"),
    ],
)
def test_a_listener_that_would_admit_anyone_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(UsageFault) as refused:
        check_open_listeners(read(text))
    assert str(refused.value).startswith(named)
    assert "anonymous = true" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        OPEN + '[access]\nusers = "users"\n',
        OPEN + TLS + 'client_ca = "ca"\n',
        OPEN + PLAIN_UDP + "[access]\nanonymous = true\n",
        PLAIN_UDP.replace("[::]", "[::1]"),
        PLAIN_UDP.replace('"none"', '"noise"'),
    ],
)
def test_listeners_that_admit_only_known_clients_or_say_so_are_accepted(text: str) -> None:
    check_open_listeners(read(text))
