"""OCI references and archives become unpacked root file systems, cached by digest."""

from sandyard.images.image import Image, ImageConfig
from sandyard.images.progress import Progress
from sandyard.images.store import ImageStore

__all__ = ["Image", "ImageConfig", "ImageStore", "Progress"]
