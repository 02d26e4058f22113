"""The house rules that a machine can hold: which module may import which, how long one may be, and that all codes are known."""

import ast
import re
from functools import cache
from pathlib import Path

import chatcodec
from chatcodec import convert, errors
from chatcodec.data import tables

PACKAGE = Path(chatcodec.__file__).parent

#: From the ground up; a module imports only what stands before it.
LAYERS = """
    errors events kept jsontext controls detokenizer grammar sink nodes search jsonruns machine messages reply values jsonstream
    assembler calls prompt snapshot stream openai typescript_lexer typescript_writer typescript wire losses format inputs formats/* formats
    integrations/opening integrations/serving integrations/vllm integrations/sglang
    shapes/repairs shapes/chat shapes/turns shapes/sharegpt shapes/hermes shapes convert
    terminal cli_io data/files data/tables data/tables_out data/tally data/checkpoint data/chunks data/workers data/engine
    data/pipeline data/rows data integrations/ray
    checks/comparing checks/checking checks/page_assets checks/page checks/probes checks/templates checks/verifying checks
    testing/asserting testing/values testing/turns testing/carried testing
    tokens/tokenizer tokens/opened tokens/stops tokens/closing tokens/encoding tokens/masks tokens/extending tokens/tokenizing tokens
    commands/* commands cli __main__ integrations
""".split()
#: `wire` and `losses` name the type of a format, and work losses out late, when somebody asks for them.
LATE = {("jsonruns", "machine"), ("wire", "losses"), ("wire", "format"), ("losses", "format"), ("stream", "format"), ("stream", "formats")}
HOOKS = {"wire": ("encoding", "masks"), "format": ("extending", "opened", "stops")}
#: What is hooked onto `Rendered` and `Format` is imported when it is used; that and what stands on a format names its type.
LATE |= {(hook, f"tokens/{name}") for hook, names in HOOKS.items() for name in names}
LONGEST = 510


@cache
def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").as_posix()
        found[name.removesuffix("/__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _imports(name: str, tree: ast.Module) -> set[str]:
    """The package's own modules that a module imports."""
    found = set()
    folder = name.rpartition("/")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = folder if node.level == 1 else ""
            if (PACKAGE / name / "__init__.py").is_file():
                start = name if node.level == 1 else ""
            target = "/".join(filter(None, [start, (node.module or "").replace(".", "/")]))
            names = [f"{target}/{alias.name}".strip("/") for alias in node.names] if not node.module else [target]
            found |= {one if one in _modules() else target for one in names}
    return found


def _layer(name: str) -> int:
    folder = name.partition("/")[0]
    return LAYERS.index(f"{folder}/*" if f"{folder}/*" in LAYERS and "/" in name else name)


def test_imports_run_one_way() -> None:
    for name, tree in _modules().items():
        if name in ("__init__", ""):
            continue
        for target in _imports(name, tree) - {""}:
            late = (name, target) in LATE
            assert late or _layer(target) < _layer(name), f"{name} imports {target}"


def test_no_format_imports_another() -> None:
    for name, tree in _modules().items():
        if name.startswith("formats/"):
            assert not [target for target in _imports(name, tree) if target.startswith("formats")], name


def test_only_grammars_know_lark() -> None:
    """The machine's tables are made by `grammar`; TypeScript has a grammar that is no chat format's."""
    for name, tree in _modules().items():
        roots = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        roots |= {
            node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level
        }
        assert "lark" not in roots or name in ("grammar", "typescript", "typescript_lexer"), name


def test_modules_stay_readable() -> None:
    for path in PACKAGE.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LONGEST, f"{path.name} has {lines} lines"


def test_every_module_says_what_it_is_for() -> None:
    for name, tree in _modules().items():
        assert ast.get_docstring(tree), name


def test_codes_that_are_used_are_known() -> None:
    known = errors.DIAGNOSTICS.keys() | errors.LOSSES | errors.REFUSALS | errors.REPAIRS | convert.REFUSALS | tables.BAD_ROWS
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        used = set(re.findall(r'(?:diagnose\(|Loss\(|refuse\([^"]*"[^"]*", |_refuse\([^"]*"[^"]*", )"([a-z_]+)"', text))
        assert used <= known, f"{path.name}: {used - known}"


def test_the_source_root_is_no_package() -> None:
    """The standard library owns the name `codecs`."""
    assert not (Path(__file__).parents[1] / "codecs" / "__init__.py").exists()
