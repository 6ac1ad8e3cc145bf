"""Adds the one generated file to the package: the wire's descriptors, made from proto/ beside sdk/."""
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


def write_descriptors(target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    protoc = [shutil.which("protoc")] if shutil.which("protoc") else [sys.executable, "-m", "grpc_tools.protoc"]
    files = sorted(str(p.relative_to(PROTO)) for p in [*PROTO.glob("rumbo/v1/*.proto"), *PROTO.glob("google/rpc/*.proto")])
    subprocess.run([*protoc, "-I", str(PROTO), "--include_imports", f"--descriptor_set_out={target}", *files],
                   check=True)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        write_descriptors(pathlib.Path(self.build_lib) / "rumbo" / "wire.binpb")


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPy})
