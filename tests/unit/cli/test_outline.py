from pathlib import Path

from milepost.cli.edge_summary import outline
from milepost.config.settings import Settings, settings_from

FULL = """
storage.durability = "nothing"
http.address = ""
sys.interval_s = 0
limits.sessions_max = 5
limits.when_slow = "disconnect"
[[mqtt.listen]]
address = "0.0.0.0:8883"
transport = "tls"
certificate = "c"
key = "k"
client_ca = "ca"
certificate_is_user = true
[[access.rules]]
allow = true
verbs = "both"
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
seal = "none"
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


def test_the_defaults_in_a_few_lines() -> None:
    assert outline(Settings()).splitlines() == [
        "edge       edge-1",
        "keeps      in data/edge, survives process crash",
        "listens    127.0.0.1:1883 (tcp)",
        "covers     everywhere",
        "users      everybody may connect, with any name or none",
        "access     0 rules; what no rule is about is allowed, topics with $ apart",
        "http       http://127.0.0.1:9464/metrics",
        "log        info and above, as text",
        "$SYS       every 10 s",
    ]


def test_what_is_not_the_default_is_said() -> None:
    lines = outline(settings_from(FULL, source="", folder=Path())).splitlines()
    assert "keeps      nothing: all is gone when the process ends" in lines
    assert "listens    0.0.0.0:8883 (tls, client certificates signed by ca, their common name is the user)" in lines
    assert "access     1 rule; what no rule is about is allowed, topics with $ apart" in lines
    assert "payload    a must be JSON" in lines
    assert "payload    c must be anything" in lines
    assert "priority   b is safety" in lines
    assert "alert      Emergency raises Alert for a corridor around it, 60 s long" in lines
    assert "udp        127.0.0.1:4242, sealing nothing: for experiments only" in lines
    assert "site       west, shared over the folder log; neighbours east" in lines
    assert "kinds      Pothole (road/pothole)" in lines
    assert "limit      move_mps_max = 60.0 (default 120.0)" in lines
    assert "limit      sessions_max = 5 (default 1048576)" in lines
    assert "limit      when_slow = disconnect (default drop)" in lines
    assert lines[-3:] == ["http       off", "log        info and above, as text", "$SYS       off"]
