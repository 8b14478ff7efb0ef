"""What a launch on the emulator does, seen by watchers of it."""

from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport, Finding
from ptxlab.observe.profile import Profile, count
from ptxlab.observe.recording import Recording
from ptxlab.observe.step import step
from ptxlab.observe.timeline import Timeline
from ptxlab.observe.trace import trace

__all__ = [
    "CheckReport",
    "Finding",
    "Profile",
    "Recording",
    "Timeline",
    "check",
    "count",
    "step",
    "trace",
]
