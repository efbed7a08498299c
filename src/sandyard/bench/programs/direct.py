"""Says whether O_DIRECT reaches a device: an aligned write must work, and one that no device can do must be refused."""

import mmap
import os

PATH = "direct.probe"


def write(size: int) -> bool:
    try:
        descriptor = os.open(PATH, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, 4096) as page:
            return os.write(descriptor, memoryview(page)[:size].toreadonly()) == size
    except OSError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(PATH)


if not write(4096):
    print("refusing O_DIRECT")
elif write(100):
    print("not proven direct: a write that no device can do is accepted")
else:
    print("direct")
