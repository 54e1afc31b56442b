"""Which CUDA a compiled library was linked against, read from its ELF header (pyelftools: the standard reader)."""

from __future__ import annotations

import re
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

# Libraries of the CUDA toolkit whose file name ends in the toolkit's major version; cuFFT and others count apart.
OF_CUDA = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink|cupti)\.so\.(\d+)")


def needed(library: Path) -> list[str]:
    """Names of the libraries that one is linked to; none for a file that is no ELF file."""
    with library.open("rb") as file:
        try:
            sections = [s for s in ELFFile(file).iter_sections() if isinstance(s, DynamicSection)]
        except ELFError:
            return []
        tags = [tag for section in sections for tag in section.iter_tags("DT_NEEDED")]
        return [str(tag.needed) for tag in tags]  # type: ignore[attr-defined] # named after the tag


def cuda_majors(library: Path) -> set[int]:
    """Major versions of the CUDA toolkit that a library is linked to."""
    return {int(match[1]) for name in needed(library) if (match := OF_CUDA.fullmatch(name))}
