"""What the stack commands print."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.markers import default_environment

from ops.atomic import write_text
from ops.local import environment_folder, is_whole
from ops.paths import CHECKOUT
from ops.stack.check import check_environment, check_lock
from ops.stack.digest import patch_list, stack_digest
from ops.stack.lock import make_lock, make_tools_lock
from ops.stack.lockfile import read_lock
from ops.stack.model import STACKS, Accelerator, Stack, load
from ops.stack.pin import pin_nightly

TOOLS = (
    ("ops/host.in", "ops/host.lock"),
    ("ops/image/build.in", "ops/image/build.lock"),
    ("tests/dev.in", "tests/dev.lock"),
)


def lock(name: str) -> None:
    """Make every lock of the stack and of the tools; a lock is replaced only when it could be made."""
    stack = load(STACKS / name)
    for accelerator in stack.accelerators.values():
        made = make_lock(accelerator, stack.lock(accelerator.name))
        write_text(stack.lock(accelerator.name), made.text())
        print(f"{stack.lock(accelerator.name).relative_to(CHECKOUT)}: {len(made.entries)} pinned")
    for source, output in TOOLS:
        make_tools_lock(CHECKOUT / source, CHECKOUT / output)
        print(f"{output}: made")


def show(name: str) -> None:
    """Print all that the stack pins."""
    stack = load(STACKS / name)
    for part in stack.accelerators.values():
        print(f"{stack.name} on {part.name}")
        for what, value in _pinned(stack, part):
            print(f"  {what:<18}{value}")
    print(_patches(stack))
    for patch in patch_list(stack):
        print(f"  {patch['sha256']}  {patch['name']}")


def _patches(stack: Stack) -> str:
    return f"{stack.patches}: {len(patch_list(stack))} patches" if stack.patches else f"{stack.name} has no patches"


def _pinned(stack: Stack, part: Accelerator) -> Iterator[tuple[str, str]]:
    entries = read_lock(stack.lock(part.name)).entries
    yield "digest", stack_digest(stack, part.name)
    yield "python", part.python
    yield "base image", part.base_image or "none: installed in a folder"
    if part.run_image:
        yield "run image", part.run_image
    if part.cuda:
        yield "cuda", part.cuda
    if part.vllm:
        yield "vllm", f"{part.vllm.version} sha256:{part.vllm.sha256}"
        yield "vllm from", part.vllm.url or "a release at the package index"
    for build in part.build:
        yield "built from source", f"{build.name} {build.version} sha256:{build.sha256}"
    yield "requirements", ", ".join(part.requirements)
    yield "lock", f"{stack.lock(part.name).name}, {len(entries)} packages:"
    for entry in entries:
        yield "", f"{entry.name} {entry.version}"


def verify(name: str) -> None:
    """Check the stack's files, and its environment where one is installed.

    Raises:
        UserError: the first thing that does not agree.
    """
    stack = load(STACKS / name)
    for part in stack.accelerators.values():
        checked = check_lock(part, stack.lock(part.name))
        print(f"ok  {part.name}.lock fits stack.toml, {len(checked.entries)} packages by sha256")
    print(f"ok  {_patches(stack)}")
    for accelerator in stack.accelerators:
        _verify_installed(stack, accelerator)


def _verify_installed(stack: Stack, accelerator: str) -> None:
    environment = environment_folder(stack, accelerator)
    if not is_whole(environment):
        print(f"--  {accelerator}: not installed here")
        return
    count = check_environment(stack, accelerator, environment, {k: str(v) for k, v in default_environment().items()})
    print(f"ok  {environment}: {count} packages as in the lock{', patches in place' if stack.patches else ''}")


def pin(name: str, commit: str, index: str, sha256: str) -> None:
    """Pin the stack to a nightly and say what was pinned."""
    pinned = pin_nightly(STACKS / name, commit, index=index, sha256=sha256)
    print(f"pinned vllm {pinned.version}\n  {pinned.url}\n  sha256 {pinned.sha256}\nthe cuda.lock was made again")
