"""Ctrl-C, pressed in the middle of something."""

import _thread
import threading
import time


def seconds_until_heard(work, after):
    """Press Ctrl-C so many seconds after ``work`` has begun; return those until it ended by that.

    On a machine so fast that it is done by then it begins anew, and has half of the time that it took.
    """
    while True:
        pressed = []

        def press(pressed=pressed):
            pressed.append(time.monotonic())
            _thread.interrupt_main()

        began = time.monotonic()
        timer = threading.Timer(after, press)
        timer.start()
        try:
            work()
            timer.cancel()
            timer.join()
        except KeyboardInterrupt:
            return time.monotonic() - pressed[0]
        finally:
            timer.cancel()
        assert not pressed, "the work went on to its end"
        after = 0.5 * (time.monotonic() - began)


def interrupted(make, work, after):
    """Press Ctrl-C in ``work`` on a new ``make()``; return what that left, and the seconds until it ended."""
    made = []

    def begin():
        made.append(make())
        work(made[-1])

    seconds = seconds_until_heard(begin, after)
    return made[-1], seconds
