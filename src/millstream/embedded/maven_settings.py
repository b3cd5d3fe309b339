"""How this machine reaches Maven artifacts, told to Ivy: settings file, mirror, proxy.

In this order: the ivysettings.xml that the environment variable MILLSTREAM_IVY_SETTINGS names; a
mirror of Maven Central in `~/.m2/settings.xml`; Ivy's default. Proxies are taken from HTTPS_PROXY,
HTTP_PROXY and NO_PROXY, which Java does not read by itself. Mirrors or proxies that want a
password need an ivysettings.xml.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from millstream.errors import EmbeddedKafkaError

# What a <mirrorOf> may say to stand in for Maven Central.
_MIRRORS_CENTRAL = frozenset({"*", "central", "external:*"})


def mirror_settings(work: Path, environ: Mapping[str, str]) -> list[str]:
    """Ivy's arguments for where to fetch from; may write a settings file into `work`.

    Raises:
        EmbeddedKafkaError: MILLSTREAM_IVY_SETTINGS names a file that does not exist.
    """
    named = environ.get("MILLSTREAM_IVY_SETTINGS")
    if named:
        settings = Path(named).expanduser()
        if not settings.is_file():
            raise EmbeddedKafkaError(
                f"MILLSTREAM_IVY_SETTINGS names {settings}, which is not a file: correct it or "
                "unset it."
            )
        return ["-settings", str(settings)]
    home = environ.get("HOME")
    url = _mirror_in(Path(home) / ".m2" / "settings.xml") if home else None
    if url is None:
        return []
    settings = work / "ivysettings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='mirror'/><resolvers>"
        f"<ibiblio name='mirror' m2compatible='true' root={quoteattr(url)}/>"
        "</resolvers></ivysettings>"
    )
    return ["-settings", str(settings)]


def _mirror_in(settings: Path) -> str | None:
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        # No Maven settings, or none that Maven itself could read: nothing is configured.
        return None
    for mirror in root.iterfind(".//{*}mirror"):
        of = (mirror.findtext("{*}mirrorOf") or "").replace(" ", "").split(",")
        url = (mirror.findtext("{*}url") or "").strip()
        blocked = (mirror.findtext("{*}blocked") or "").strip() == "true"
        if url and not blocked and _MIRRORS_CENTRAL.intersection(of) and "!central" not in of:
            return url
    return None


def jvm_proxy_options(environ: Mapping[str, str]) -> list[str]:
    """Java's options for the proxies that the environment names."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        proxy = urlsplit(value if "//" in value else f"//{value}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and direct:
        hosts = [host.strip() for host in direct.split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options
