"""Options of the site's log in the words of Kafka's client in Java."""

from pathlib import Path

from milepost.pipelines.sources.kafka import java_options


def test_what_has_one_name_in_both_is_handed_on() -> None:
    assert java_options({"security.protocol": "SSL", "client.rack": "a"}) == {"security.protocol": "SSL", "client.rack": "a"}


def test_a_password_is_a_login_module_in_which_it_cannot_end_the_line() -> None:
    told = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ada", "sasl.password": 'a"; x\\'}
    assert java_options(told) == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada" password="a\\"; x\\\\";',
    }


def test_certificates_are_told_as_pem(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("CERTIFICATE")
    (tmp_path / "k.pem").write_text("KEY")
    told = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": f"{tmp_path}/c.pem", "ssl.key.location": f"{tmp_path}/k.pem"}
    assert java_options(told) == {
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
    }
