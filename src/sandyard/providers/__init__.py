"""One sandbox interface over many providers, with a declaration of what each can do."""

from sandyard.providers.declaration import CAPABILITIES, Declaration, load_declaration
from sandyard.providers.provider import CreateRequest, Output, Provider

__all__ = ["CAPABILITIES", "CreateRequest", "Declaration", "Output", "Provider", "load_declaration"]
