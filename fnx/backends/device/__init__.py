"""Devices, storage, command buffers and queues, as all backends share them."""
