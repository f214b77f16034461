"""Devices with their own memory and queues: the layers above their drivers."""
