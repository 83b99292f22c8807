"""Ctrl-C, pressed in the middle of something."""

import _thread
import threading
import time

import pytest


def seconds_until_heard(work, after):
    """Press Ctrl-C so many seconds after ``work`` has begun; return those until it ended by that."""
    pressed = []

    def press():
        pressed.append(time.monotonic())
        _thread.interrupt_main()

    timer = threading.Timer(after, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        timer.cancel()
    return time.monotonic() - pressed[0]
