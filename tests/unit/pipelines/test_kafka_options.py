"""Translation of the site's Kafka options for the Java client."""

from pathlib import Path

from milepost.pipelines.sources.kafka import java_options


def test_options_with_the_same_name_are_passed_on() -> None:
    assert java_options({"security.protocol": "SSL", "client.rack": "a"}) == {"security.protocol": "SSL", "client.rack": "a"}


def test_a_password_is_escaped_in_the_login_module() -> None:
    options = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ada", "sasl.password": 'a"; x\\'}
    assert java_options(options) == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada" password="a\\"; x\\\\";',
    }


def test_certificates_are_passed_as_pem(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("CERTIFICATE")
    (tmp_path / "k.pem").write_text("KEY")
    options = {
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": f"{tmp_path}/c.pem",
        "ssl.key.location": f"{tmp_path}/k.pem",
    }
    assert java_options(options) == {
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
    }
