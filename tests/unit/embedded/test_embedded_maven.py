"""Ivy is configured with the machine's access to Maven artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.embedded.jars import jvm_proxy_options, mirror_settings
from millstream.errors import EmbeddedKafkaError

SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>
<mirror><id>a</id><mirrorOf>{of}</mirrorOf><url>http://mirror.test/maven?a=1&amp;b=2</url>{more}</mirror>
</mirrors></settings>"""


def home_with(folder: Path, of: str, more: str = "") -> dict[str, str]:
    (folder / ".m2").mkdir()
    (folder / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of, more=more))
    return {"HOME": str(folder)}


def test_without_configuration_ivy_uses_its_default(tmp_path: Path) -> None:
    assert mirror_settings(tmp_path, {"HOME": str(tmp_path)}) == []


@pytest.mark.parametrize("of", ["central", "*", "external:*", "*, !internal", "a,central"])
def test_a_mirror_of_central_is_used(tmp_path: Path, of: str) -> None:
    """The mirror of the user's Maven settings becomes Ivy's only repository."""
    option, path = mirror_settings(tmp_path, home_with(tmp_path, of))
    assert option == "-settings"
    assert 'root="http://mirror.test/maven?a=1&amp;b=2"' in Path(path).read_text()


@pytest.mark.parametrize(
    ("of", "more"),
    [("other", ""), ("*,!central", ""), ("external:http:*", ""), ("*", "<blocked>true</blocked>")],
)
def test_other_mirrors_are_not_used(tmp_path: Path, of: str, more: str) -> None:
    """Mirrors of other repositories and blocked mirrors do not apply to Maven Central."""
    assert mirror_settings(tmp_path, home_with(tmp_path, of, more)) == []


def test_invalid_maven_settings_are_ignored(tmp_path: Path) -> None:
    """Maven could not read the file either."""
    environ = home_with(tmp_path, "*")
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    assert mirror_settings(tmp_path, environ) == []


def test_explicit_ivy_settings_take_precedence(tmp_path: Path) -> None:
    """MILLSTREAM_IVY_SETTINGS precedes Maven's settings, and must exist."""
    named = tmp_path / "ivysettings.xml"
    environ = {**home_with(tmp_path, "*"), "MILLSTREAM_IVY_SETTINGS": str(named)}
    with pytest.raises(EmbeddedKafkaError, match="not a file"):
        mirror_settings(tmp_path, environ)
    named.write_text("<ivysettings/>")
    assert mirror_settings(tmp_path, environ) == ["-settings", str(named)]


def test_proxies_become_java_options() -> None:
    """Java does not read the proxy variables; it gets system properties."""
    assert jvm_proxy_options(
        {"https_proxy": "http://p.test:3128", "NO_PROXY": "localhost, .corp.test"}
    ) == [
        "-Dhttps.proxyHost=p.test",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.corp.test",
    ]
    assert jvm_proxy_options({"HTTP_PROXY": "p.test"}) == [
        "-Dhttp.proxyHost=p.test",
        "-Dhttp.proxyPort=80",
    ]
    assert jvm_proxy_options({"NO_PROXY": "localhost"}) == []
