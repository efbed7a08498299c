"""What skopeo, umoci, tar and mmdebstrap print when they fail, as errors that say what to do."""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from sandyard.errors import (
    CorruptImageError,
    ImageError,
    ImageNotFoundError,
    InvalidRequestError,
    NoSpaceError,
    RegistryUnreachableError,
    SandyardError,
)
from sandyard.images.commands import Completed


class _Rule(NamedTuple):
    """One kind of failure, known by what the program prints."""

    pattern: str
    error: type[SandyardError]
    why: str
    hint: str
    code: str | None = None
    program: str | None = None
    """The only one that means this by it."""


_RULES = (
    _Rule(
        r"no space left on device|not enough free space|wrote only \d+ of \d+ bytes",
        NoSpaceError,
        "the disk is full",
        "Free space under the state directory ('sandyard images prune' removes unused images), then try again.",
    ),
    _Rule(
        "no image found in (manifest list|image index) for architecture",
        ImageError,
        "it has no variant for this machine's architecture",
        "Choose an image built for this architecture.",
        code="image-platform",
    ),
    _Rule(
        "more than one image in",
        InvalidRequestError,
        "there is more than one image in it",
        "Name one of them: oci:DIR:TAG.",
    ),
    _Rule(
        r"loading tar component manifest.json|open \S*/oci\d+/index.json|does not look like a tar archive",
        InvalidRequestError,
        "the file is not an archive of that kind",
        "Name the file without a prefix, and its content is looked at.",
    ),
    _Rule(
        "digest did not match|digest mismatch|does not match expected|"
        "does not match provided manifest digest|manifest verification failed|invalid tar header|"
        "gzip: invalid|unexpected EOF|diffid|unexpected end of file|skipping to next header",
        CorruptImageError,
        "what arrived is not what its digest promised",
        "Nothing of it was kept. Try again; if it stays so, the image is damaged where it is stored: push it anew.",
    ),
    _Rule(
        r"member name contains '\.\.'|refusing to (read|write)|escapes",
        ImageError,
        "a file in it would be written outside of its root",
        "Do not use this archive unless you know why it is made like that.",
        code="image-unsafe-path",
    ),
    _Rule(
        "not correct mediatype|unsupported (media|MIME) ?type|unsupported image-specific operation",
        ImageError,
        "its layers are packed in a way that the installed umoci cannot read",
        "Push it with gzip-compressed layers, or install a newer umoci.",
        code="image-unsupported",
    ),
    _Rule(
        "zstd: cannot exec|xz: cannot exec|bzip2: cannot exec",
        ImageError,
        "the program that unpacks this kind of compression is not installed",
        "Install zstd, xz or bzip2, whichever the file needs, or unpack the file yourself.",
        code="image-unsupported",
    ),
    _Rule(
        "unable to connect|could not connect|could not resolve|failed to fetch|temporary failure",
        RegistryUnreachableError,
        "Debian's mirror does not answer",
        "Check that 'apt-get update' works on this host, then try again.",
        program="mmdebstrap",
    ),
    _Rule(
        "unauthorized|authentication required|access denied|access to the resource is denied|denied:|"
        "invalid username/password",
        ImageError,
        "the registry refuses it without other credentials, or it does not exist there",
        "Check the name; for a private image run 'skopeo login REGISTRY' first.",
        code="image-auth",
    ),
    _Rule(
        "toomanyrequests|too many requests|rate limit",
        ImageError,
        "the registry's limit of pulls is reached",
        "Wait, or run 'skopeo login REGISTRY' for a higher limit.",
        code="image-rate-limit",
    ),
    _Rule(
        "manifest unknown|name unknown|name_unknown|no descriptor found for reference|"
        "no such file or directory|not found: manifest|invalid image detected|"
        "status code 404",
        ImageNotFoundError,
        "it does not exist there",
        "Check the spelling of name, tag and digest, and that the image was pushed.",
        program="skopeo",
    ),
    _Rule(
        r"link: no such file or directory|cannot hard link to .*: no such file or directory",
        ImageError,
        "a hard link in it leads to a file that is not in it",
        "Do not use this image unless you know why it is made like that.",
        code="image-unsafe-path",
    ),
    _Rule(
        "server gave HTTP response to HTTPS client",
        RegistryUnreachableError,
        "the registry does not speak HTTPS",
        "If you trust the network to it, allow it as an insecure registry.",
    ),
    _Rule(
        "connection refused|no such host|i/o timeout|timeout|network is unreachable|no route to host|"
        r"connection reset|x509|certificate|pinging container registry|unexpected http status|\bEOF\b",
        RegistryUnreachableError,
        "the registry does not answer as it should",
        "Check the registry's name, your network, proxy and certificates, then try again.",
    ),
)


def failure(what: str, completed: Completed) -> SandyardError:
    """Return the error that a program's output stands for.

    Args:
        what: the beginning of the sentence: ``"the image 'debian:12' could not be pulled"``.
        completed: a program that failed.
    """
    said = _last_words(completed.stderr)
    for rule in _RULES:
        if rule.program in {None, completed.program} and re.search(rule.pattern, completed.stderr, re.IGNORECASE):
            return rule.error(f"{what}: {rule.why} ({said}).", hint=rule.hint, code=rule.code)
    return ImageError(
        f"{what}: {completed.program} ended with exit code {completed.returncode} ({said}).",
        hint="'sandyard doctor' checks the tools for images; if all are fine, this is worth reporting.",
    )


def from_os_error(what: str, error: OSError) -> SandyardError:
    """Return the error for what the file system refused."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpaceError(f"{what}: the disk is full ({error}).", hint=_RULES[0].hint)
    return ImageError(f"{what}: {error}.", hint="Check the permissions and the file system of the state directory.")


def _last_words(stderr: str) -> str:
    """Return the line that says why, without what log libraries put around it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and "Exiting with failure" not in line]
    errors = [line for line in lines if line.startswith("E: ")]  # apt says first why, then what it cannot do
    line = errors[0] if errors else lines[-1] if lines else "it said nothing"
    logged = re.search(r'level=fatal msg="(.*)"$', line)
    text = logged.group(1).replace('\\"', '"') if logged else line.removeprefix("\N{VECTOR OR CROSS PRODUCT}").strip()
    return re.sub(r'^Error parsing image name ".*?": ', "", text).removesuffix(".")
