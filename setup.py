"""Native parts only; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT))  # PEP 517 runs us without the checkout on the path
import nativebuild  # noqa: E402


class BuildNative(build_ext):
    """build_ext that leaves the compiling to nativebuild.py."""

    def run(self) -> None:
        into = ROOT if self.inplace else Path(self.build_lib).resolve()
        toolchain = nativebuild.Toolchain.from_environment()
        for artifact in nativebuild.artifacts():
            nativebuild.build(artifact, toolchain, into)

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / a.target) for a in nativebuild.artifacts()]

    def get_output_mapping(self) -> dict[str, str]:
        return {
            str(Path(self.build_lib) / artifact.target): artifact.target
            for artifact in nativebuild.artifacts()
        }


class PlatformWheel(bdist_wheel):
    """One wheel for every CPython from 3.11 on: the bindings use the stable ABI."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()


setup(
    # A wheel is only tagged with its platform, and build_ext only runs, when there is an extension.
    ext_modules=[Extension("shim._files", sources=[])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
