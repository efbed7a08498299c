"""Every error that Sandyard raises, as one tree.

``str(error)`` says what happened and why, then what to do about it; ``code`` is stable and may be matched on.
"""

from __future__ import annotations


class SandyardError(Exception):
    """What went wrong, why, and what to do next."""

    code = "sandyard-error"
    """Stable, kebab-case; the same word in the CLI, the API and the SDK."""

    status = 500
    """The HTTP status that this error is answered with."""

    def __init__(self, what: str, *, hint: str, code: str | None = None) -> None:
        """Say ``what`` happened and why in one sentence, and in ``hint`` what to do next."""
        super().__init__(what, hint)
        self.what = what
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """One text for a person: what and why, then what to do."""
        return f"{self.what} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """Survive copying and pickling with the code kept."""
        return _rebuild, (type(self), self.what, self.hint, self.code)


def _rebuild(kind: type[SandyardError], what: str, hint: str, code: str) -> SandyardError:
    return kind(what, hint=hint, code=code)


# -- the caller's request ---------------------------------------------------------------------------------------------


class InvalidRequestError(SandyardError, ValueError):
    """The request can never succeed as it is."""

    code = "invalid-request"
    status = 422


class InvalidSpecError(InvalidRequestError):
    """A sandbox was asked for that cannot exist: a size, a name or a value is out of range."""

    code = "invalid-spec"


class NotFoundError(SandyardError, LookupError):
    """What was named does not exist."""

    code = "not-found"
    status = 404


class SandboxNotFoundError(NotFoundError):
    """No sandbox has this id."""

    code = "sandbox-not-found"


class SnapshotNotFoundError(NotFoundError):
    """No snapshot has this id."""

    code = "snapshot-not-found"


class ImageNotFoundError(NotFoundError):
    """No registry, folder or archive holds this image."""

    code = "image-not-found"


class FileNotFoundInSandboxError(NotFoundError):
    """The path does not exist inside the sandbox."""

    code = "file-not-found"


class ConflictError(SandyardError):
    """The thing exists, but is in a state that forbids the request."""

    code = "conflict"
    status = 409


class SandboxStateError(ConflictError):
    """The sandbox is in a state from which this cannot be done: failed or deleted."""

    code = "sandbox-state"


class SandboxLockedError(ConflictError):
    """Another process on this host owns the sandbox."""

    code = "sandbox-locked"


class StateVersionError(ConflictError):
    """The state directory was written by a newer version."""

    code = "state-version"


class ResourceExhaustedError(SandyardError):
    """There is not enough of something: disk, memory, or a quota."""

    code = "resource-exhausted"
    status = 503


class NoSpaceError(ResourceExhaustedError):
    """The disk under the state directory, or the one inside the sandbox, is full."""

    code = "no-space"
    status = 507


class DeadlineExceededError(SandyardError, TimeoutError):
    """Something took longer than it was given."""

    code = "deadline-exceeded"
    status = 504


class StartTimeoutError(DeadlineExceededError):
    """The sandbox did not answer in time after its start."""

    code = "start-timeout"


# -- images -----------------------------------------------------------------------------------------------------------


class ImageError(SandyardError):
    """An image could not be fetched, read or unpacked."""

    code = "image-error"


class RegistryUnreachableError(ImageError):
    """The registry did not answer."""

    code = "registry-unreachable"
    status = 502


class CorruptImageError(ImageError):
    """A layer or manifest does not have the digest that it was promised with."""

    code = "image-corrupt"


# -- commands inside a sandbox ----------------------------------------------------------------------------------------


class CommandError(InvalidRequestError):
    """A command could not be started inside the sandbox; ``code`` says why."""

    code = "command-failed-to-start"


class CommandFailedError(SandyardError):
    """A command ended with a non-zero exit code and the caller had asked for success."""

    code = "command-failed"


# -- the machinery ----------------------------------------------------------------------------------------------------


class HostError(SandyardError):
    """The host lacks something that Sandyard needs; ``sandyard doctor`` lists all of it."""

    code = "host-unfit"


class RuntimeDriverError(SandyardError):
    """The isolation layer under the sandbox failed."""

    code = "driver-error"


class StartError(RuntimeDriverError):
    """The sandbox could not be started or restored."""

    code = "start-failed"


class SnapshotError(RuntimeDriverError):
    """A checkpoint could not be written; the sandbox it was taken of goes on."""

    code = "snapshot-failed"


class SandboxGoneError(RuntimeDriverError):
    """The sandbox ended while it was in use; the text says of what."""

    code = "sandbox-gone"


class OutOfMemoryError(SandboxGoneError):
    """The kernel killed the sandbox, as it had reached its memory limit."""

    code = "out-of-memory"


class GuestAgentError(RuntimeDriverError):
    """The agent inside the sandbox refused or failed a request for a reason of its own."""

    code = "guest-agent-error"


class TransportError(SandyardError):
    """The way to the other side is broken."""

    code = "transport-error"
    status = 502


class ConnectError(TransportError):
    """Nothing answers at an address inside the sandbox; the way to the sandbox itself is sound."""

    code = "connect-failed"


class ProtocolError(TransportError):
    """The other side sent what the protocol forbids; the connection is given up."""

    code = "protocol-error"


# -- benchmarks -------------------------------------------------------------------------------------------------------


class BenchError(SandyardError):
    """A benchmark, its records or its statistics cannot be what was asked for."""

    code = "bench-error"
    status = 422


class InsufficientSamplesError(BenchError):
    """There are fewer values than the statistic needs."""

    code = "insufficient-samples"


class IncomparableRunsError(BenchError):
    """Results of different regions, images or procedures were put together."""

    code = "incomparable-runs"


class ProviderError(SandyardError):
    """A sandbox provider failed or refused a call; ``code`` says which kind."""

    code = "provider-error"
    status = 502


class NotReadyError(ProviderError):
    """The sandbox does not take commands yet: HTTP 502, 503 or 504, or the connection was refused or reset."""

    code = "not-ready"


class SpendLimitError(ProviderError):
    """The account may not spend more; no later trial can succeed."""

    code = "spend-limit"


class NotOfferedError(ProviderError):
    """The provider does not have this operation."""

    code = "not-offered"
