"""Stands in for the engine's process: starts one of its own, tells both numbers in the log, and stays."""

import os
import signal
import subprocess
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
