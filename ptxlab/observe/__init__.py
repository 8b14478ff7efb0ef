"""What a launch on the emulator does, seen by watchers of it."""

from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport, Finding
from ptxlab.observe.profile import Profile, count

__all__ = ["CheckReport", "Finding", "Profile", "check", "count"]
