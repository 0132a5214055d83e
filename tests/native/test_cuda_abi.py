"""Our declarations of the driver API are those of CUDA's own header: numbers, layouts, calls."""

import re
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pycparser import CParser, c_ast, c_generator

ROOT = Path(__file__).parents[2]
ABI = ROOT / "shim" / "abi"

# What the headers need of libc, in words that a parser of plain C understands.
PLAIN_LIBC = """
typedef unsigned long size_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t;
typedef unsigned int uint32_t; typedef unsigned long uint64_t; typedef int int32_t;
typedef long int64_t; typedef unsigned long uintptr_t;
"""
OUR_HEADERS = ("cuda_exec_abi.h", "cuda_shim_abi.h")
# Of interfaces whose headers are not in the wheel.
ELSEWHERE = ("cuGL", "cuVDPAU", "cuProfiler", "CU_OUT_")


@dataclass(slots=True)
class Declarations:
    """What a header declares, by name."""

    constants: set[str] = field(default_factory=set)
    fields: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def header() -> Path:
    """CUDA's header, from the wheel that brings it."""
    package = find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for found in Path(folder).glob("*/include/cuda.h"):
            return found
    pytest.skip("no cuda.h: the wheel nvidia-cuda-runtime is not installed")


def preprocessed(folder: Path, header: str, *flags: str) -> str:
    """The header's own declarations, without comments and attributes."""
    for name in ("stddef.h", "stdint.h", "stdlib.h", "stdbool.h"):
        (folder / name).write_text('#pragma once\n#include "plain_libc.h"\n')
    (folder / "plain_libc.h").write_text(f"#pragma once\n{PLAIN_LIBC}")
    text = subprocess.run(
        ["cc", "-E", "-P", "-nostdinc", f"-I{folder}", *flags, "-x", "c", "-"],
        input=f'#include "{header}"\n',
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return re.sub(r"__attribute__\(\(.*?\)\)", "", text)


def fields_of(node: Any) -> list[str]:
    """The fields that can be named; those of an inner struct without a name among them."""
    names = []
    for declared in node.decls or ():
        if declared.name is not None:
            names.append(declared.name)
        elif isinstance(declared.type, c_ast.Struct | c_ast.Union):
            names += fields_of(declared.type)
    return names


def type_text(node: Any) -> str:
    """A parameter's type in one way of writing it; versions of a type have its plain name."""
    inner = node
    while not isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    inner.declname = None
    text = c_generator.CGenerator().visit(c_ast.Typename(None, [], None, node))
    text = re.sub(r"\bunsigned(?! (?:int|long|char|short))\b", "unsigned int", text)
    return re.sub(r"\b(CU\w+?)_v\d\b", r"\1", text).replace(" ", "")


def parse(text: str) -> Declarations:
    twins = re.findall(r"__typeof__\((\w+)\) (\w+);", text)
    tree = CParser().parse(re.sub(r"__typeof__\(\w+\) \w+;", "", text))
    found = Declarations()
    for node in tree.ext:
        inner = node.type.type if isinstance(node, c_ast.Typedef) else None
        if isinstance(inner, c_ast.Enum) and inner.values is not None:
            found.constants |= {value.name for value in inner.values.enumerators}
        if isinstance(inner, c_ast.Struct | c_ast.Union) and inner.decls is not None:
            found.fields[node.name] = fields_of(inner)
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            parameters = node.type.args.params if node.type.args else []
            found.functions[node.name] = [type_text(each.type) for each in parameters]
    for base, twin in twins:
        found.functions[twin] = found.functions[base]
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    folder = tmp_path_factory.mktemp("ours")
    text = preprocessed(folder, OUR_HEADERS[-1], f"-I{ABI}")
    found = parse(text)
    for source in ABI.glob("cuda_*.h"):
        found.constants |= set(re.findall(r"^#define (CU\w+) \S", source.read_text(), re.M))
    return found


@pytest.fixture(scope="module")
def theirs(header: Path, tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    """All versions that the header knows, not only the newest."""
    folder = tmp_path_factory.mktemp("theirs")
    flags = (f"-I{header.parent}", "-D__CUDA_API_VERSION_INTERNAL", "-D__STDC_VERSION__=201112L")
    return parse(preprocessed(folder, "cuda.h", "-Wno-builtin-macro-redefined", *flags))


def numbers(folder: Path, include: str, expressions: dict[str, str], *flags: str) -> dict[str, int]:
    """What the expressions are worth to a program that includes the header."""
    lines = "".join(
        f'printf("{name} %lld\\n", (long long)({expression}));\n'
        for name, expression in expressions.items()
    )
    program = folder / "numbers"
    source = (
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n"
        f'#include "{include}"\nint main(void) {{\n{lines}return 0; }}\n'
    )
    subprocess.run(
        ["cc", "-w", *flags, "-x", "c", "-", "-o", program], input=source, check=True, text=True
    )
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in printed.splitlines())}


def test_constants_have_cudas_values(header: Path, ours: Declarations, tmp_path: Path) -> None:
    # Ends of lists move with every version, and nobody passes them.
    known = sorted(
        name
        for name in ours.constants
        if not name.endswith("_MAX") and not name.startswith(ELSEWHERE)
    )
    assert len(known) > 700
    expressions = {name: name for name in known}
    assert numbers(tmp_path, "cuda_exec_abi.h", expressions, f"-I{ABI}") == numbers(
        tmp_path, "cuda.h", expressions, f"-I{header.parent}"
    )


def test_structs_have_cudas_layout(header: Path, ours: Declarations, tmp_path: Path) -> None:
    expressions = {}
    for struct, fields in ours.fields.items():
        if struct.endswith("_v1"):  # 32-bit forms, which the header hides
            continue
        expressions[struct] = f"sizeof({struct})"
        for name in fields:
            expressions[f"{struct}.{name}"] = f"offsetof({struct}, {name})"
            expressions[f"{struct}.{name}.size"] = f"sizeof((({struct} *)0)->{name})"
    assert len(expressions) > 800
    assert numbers(tmp_path, "cuda_exec_abi.h", expressions, f"-I{ABI}") == numbers(
        tmp_path, "cuda.h", expressions, f"-I{header.parent}"
    )


def test_functions_have_cudas_parameters(ours: Declarations, theirs: Declarations) -> None:
    declared = {
        name: parameters
        for name, parameters in ours.functions.items()
        if not name.startswith(ELSEWHERE)
    }
    # A per-thread twin has its own declaration only where it differs from its base.
    unknown = {
        name
        for name in declared.keys() - theirs.functions.keys()
        if not name.endswith(("_ptsz", "_ptds"))
    }
    assert unknown == set()
    shared = declared.keys() & theirs.functions.keys()
    assert len(shared) > 350
    assert {name: declared[name] for name in shared} == {
        name: theirs.functions[name] for name in shared
    }
