"""Press Ctrl-C during work, at a point that does not depend on the speed of the computer."""

import _thread
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest


@contextmanager
def pressed_after(processor_seconds=0.3):
    """Press Ctrl-C after this processor time, which counts work, and expect `KeyboardInterrupt`."""
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
    """Yield a function with which other threads press Ctrl-C; it returns once the cancel flag is set.

    The main thread runs the handler and sets the flag before it releases the interpreter: when another thread
    runs and the handler's frame is gone, the flag is set.
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
    """Wait until threads that `in_background` abandoned have ended.

    After a signal interrupts `Thread.join`, CPython 3.11 believes that the thread has ended.
    """
    while any(thread.name.endswith("(run)") for thread in threading.enumerate()):
        time.sleep(0.005)
