from pathlib import Path

from milepost.cli.edge_summary import summary_of
from milepost.config.settings import Settings, settings_from

FULL = """
storage.durability = "none"
http.address = ""
sys.interval_s = 0
limits.sessions_max = 5
limits.slow_consumer = "disconnect"
[[mqtt.listen]]
address = "0.0.0.0:8883"
transport = "tls"
certificate = "c"
key = "k"
client_ca = "ca"
certificate_is_user = true
[[access.rules]]
allow = true
action = "both"
topics = "#"
[[rules.payload]]
topic = "a"
json = true
[[rules.payload]]
topic = "c"
[[rules.priority]]
topic = "b"
class = "safety"
[[rules.alert]]
topic = "Emergency"
shape = "corridor"
[udp]
address = "127.0.0.1:4242"
encryption = "none"
[vetting]
move_mps_max = 60.0
[site]
name = "west"
folder = "log"
[[site.neighbours]]
name = "east"
folder = "other"
[[incidents.kinds]]
name = "Pothole"
topic = "road/pothole"
predicate = "witnesses >= 3"
"""


def test_the_summary_of_the_defaults_is_a_few_lines() -> None:
    assert summary_of(Settings()).splitlines() == [
        "edge       edge-1",
        "storage    data/edge, durable against process crash",
        "mqtt       127.0.0.1:1883 (tcp)",
        "coverage   everywhere",
        "users      none: every client may connect",
        "access     0 rules; without a rule see docs/reference/access.md",
        "alert      Emergency raises Alert in a circle around its place, valid for 60 s",
        "http       http://127.0.0.1:9464/metrics",
        "log        info and above, as text",
        "$SYS       every 10 s",
    ]


def test_the_summary_names_every_setting_that_is_not_the_default() -> None:
    lines = summary_of(settings_from(FULL, source="", folder=Path())).splitlines()
    assert "storage    none: all state is lost when the process ends" in lines
    assert "mqtt       0.0.0.0:8883 (tls, client certificates signed by ca, whose common name is the user name)" in lines
    assert "access     1 rule; without a rule see docs/reference/access.md" in lines
    assert "payload    a must be JSON" in lines
    assert "payload    c may be anything" in lines
    assert "priority   b has priority safety" in lines
    assert "alert      Emergency raises Alert in a corridor around its place, valid for 60 s" in lines
    assert "udp        127.0.0.1:4242, not encrypted: for experiments only" in lines
    assert "site       west, log: the folder log; neighbours east" in lines
    assert "kinds      Pothole (road/pothole)" in lines
    assert "limit      move_mps_max = 60.0 (default 120.0)" in lines
    assert "limit      sessions_max = 5 (default 1048576)" in lines
    assert "limit      slow_consumer = disconnect (default drop)" in lines
    assert lines[-3:] == ["http       off", "log        info and above, as text", "$SYS       off"]
