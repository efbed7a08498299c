"""Computers for AI agents on your own hosts: run them, meter them, price them, bench them."""
