"""Devices with memory and queues of their own: what all of them share, above their drivers."""
