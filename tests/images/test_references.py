from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.errors import InvalidRequestError
from sandyard.images.references import DEFAULT, Kind, Reference, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "registry", "name", "tag", "digest"),
    [  # what Docker makes of each
        ("debian", "docker.io", "docker.io/library/debian", "latest", None),
        ("debian:12", "docker.io", "docker.io/library/debian", "12", None),
        ("docker.io/debian:12", "docker.io", "docker.io/library/debian", "12", None),
        ("index.docker.io/debian", "docker.io", "docker.io/library/debian", "latest", None),
        ("user/app", "docker.io", "docker.io/user/app", "latest", None),
        ("ghcr.io/user/app:v1.2-x_y", "ghcr.io", "ghcr.io/user/app", "v1.2-x_y", None),
        ("localhost/x", "localhost", "localhost/x", "latest", None),
        ("localhost:5000/x:tag", "localhost:5000", "localhost:5000/x", "tag", None),
        ("127.0.0.1:5000/a/b/c", "127.0.0.1:5000", "127.0.0.1:5000/a/b/c", "latest", None),
        (f"registry.example:5000/x@{DIGEST}", "registry.example:5000", "registry.example:5000/x", None, DIGEST),
        (f"debian:12@{DIGEST}", "docker.io", "docker.io/library/debian", "12", DIGEST),
        ("a__b/c-d.e", "docker.io", "docker.io/a__b/c-d.e", "latest", None),
        ("default/x", "docker.io", "docker.io/default/x", "latest", None),
        ("image.tar", "docker.io", "docker.io/library/image.tar", "latest", None),
    ],
)
def test_names_of_registries(text: str, registry: str, name: str, tag: str | None, digest: str | None) -> None:
    reference = parse(text)
    assert reference == Reference(Kind.REGISTRY, name, tag, digest)
    assert reference.registry == registry


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not the name of a repository"),
        ("Debian", "not the name of a repository"),
        ("debian:", "not a tag"),
        ("debian:12:13", "not"),
        ("debian:-x", "not a tag"),
        ("debian:" + "x" * 129, "not a tag"),
        ("debian@sha256:1234", "not a digest"),
        ("debian@md5:" + "0" * 32, "not a digest"),
        ("debian@" + DIGEST.upper(), "not a digest"),
        ("a//b", "not the name of a repository"),
        ("a/../b", "not the name of a repository"),
        ("-bad.example/x", "not the name of a registry"),
        ("host.example:port/x", "not the name of a registry"),
        ("x" * 300, "characters"),
        ("deb ian", "not the name of a repository"),
        ("debian\n", "not the name of a repository"),
        ("debian:12\n", "not a tag"),
        ("--help", "not the name of a repository"),
        ("http://registry.example/x", "not"),
        ("oci:", "names no file"),
        ("oci:/x:bad tag", "not a tag"),
        ("rootfs:/with:colon.tar", "colon"),
        ("docker-archive:x\0y", "names no file"),
    ],
)
def test_what_names_no_image(text: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as caught:
        parse(text)
    assert caught.value.hint


def test_local_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout/oci-layout").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "x.tar").touch()
    here = str(tmp_path)
    assert parse("default") is DEFAULT
    assert parse("oci:layout") == Reference(Kind.OCI_LAYOUT, f"{here}/layout")
    assert parse("oci:layout:v1") == Reference(Kind.OCI_LAYOUT, f"{here}/layout", "v1")
    assert parse("docker-archive:x.tar") == Reference(Kind.DOCKER_ARCHIVE, f"{here}/x.tar")
    assert parse("oci-archive:/x.tar") == Reference(Kind.OCI_ARCHIVE, "/x.tar")
    assert parse("rootfs:../x.tar.zst") == Reference(Kind.ROOTFS, f"{tmp_path.parent}/x.tar.zst")
    assert parse("./layout") == Reference(Kind.OCI_LAYOUT, f"{here}/layout")
    assert parse("x.tar") == parse("./x.tar") == Reference(Kind.ARCHIVE, f"{here}/x.tar")
    with pytest.raises(InvalidRequestError, match="not an OCI layout"):
        parse("./folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidRequestError, match="cannot be followed"):
        parse("./loop")
    assert parse("folder").kind is Kind.REGISTRY, "a folder never takes the place of a repository's name"


_WORD = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
_PART = st.lists(_WORD, min_size=1, max_size=3).flatmap(
    lambda words: st.sampled_from([".", "_", "__", "-"]).map(lambda by: by.join(words))
)
_HOST = (
    st.tuples(_WORD, _WORD).map(".".join)
    | st.just("localhost")
    | st.tuples(_WORD, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")
)
_TAG = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
_DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)


@given(st.none() | _HOST, st.lists(_PART, min_size=1, max_size=3).map("/".join), st.none() | _TAG, st.none() | _DIGEST)
def test_what_is_read_is_written_the_same(host: str | None, path: str, tag: str | None, digest: str | None) -> None:
    text = "".join([f"{host}/" if host else "", path, f":{tag}" if tag else "", f"@{digest}" if digest else ""])
    reference = parse(text)
    assert parse(str(reference)) == reference
    assert str(reference).endswith(text if tag or digest else f"{text}:latest") or text == "default"
    assert reference.tag == (tag or (None if digest else "latest")) or text == "default"
    assert reference.digest == digest


@given(
    st.sampled_from(["oci", "oci-archive", "docker-archive", "rootfs"]),
    st.text(st.characters(exclude_characters="\0:", exclude_categories=["Cs"]), min_size=1),
)
def test_local_ones_are_written_the_same(kind: str, path: str) -> None:
    reference = parse(f"{kind}:{path}")
    assert parse(str(reference)) == reference
    assert reference.path.is_absolute()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        reference = parse(text)
    except InvalidRequestError:
        return
    assert parse(str(reference)) == reference
