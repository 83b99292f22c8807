"""Ctrl-C, pressed in the middle of something. What comes of it does not depend on how long anything takes."""

import _thread
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest


@contextmanager
def pressed_after(processor_seconds=0.3):
    """Press Ctrl-C once this process has computed for so long, and expect `KeyboardInterrupt`.

    Processor time counts work: on a slow or busy machine the work has come as far when the signal arrives.
    """
    begun, ended = time.process_time(), threading.Event()

    def press():
        while time.process_time() - begun < processor_seconds:
            if ended.wait(0.005):
                return
        _thread.interrupt_main()

    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def pressed_and_heard():
    """Give a function that other threads press Ctrl-C with; it returns once the fit's cancel flag is up.

    The main thread runs the handler with the interpreter held, and sets the flag before it releases it: when
    another thread runs and the handler's frame is gone, the flag is up.
    """
    raised = threading.Event()

    def handler(number, frame):
        raised.set()
        raise KeyboardInterrupt

    def press():
        _thread.interrupt_main()
        raised.wait()
        while sys._current_frames()[threading.main_thread().ident].f_code is handler.__code__:
            time.sleep(0.001)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield press
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_background():
    """Wait until what `in_background` gave up has ended.

    Not by `Thread.join`: CPython 3.11 takes a thread for ended once a signal has interrupted `join`.
    """
    while any(thread.name.endswith("(run)") for thread in threading.enumerate()):
        time.sleep(0.005)
