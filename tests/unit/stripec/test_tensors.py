"""Types as people write them, `.npy` files good and bad, generated inputs."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stripe.diag import CompileError
from stripe.dtypes import DType, TensorType
from stripec import tensors
from stripec.tensors import as_type, check_memory, make_input, parse_type, read_npy


@pytest.mark.parametrize(
    ("text", "shape"), [("f32[3,4]", (3, 4)), (" f32 [ 3 , 0 ] ", (3, 0)), ("f32", ()), ("f32[]", ())]
)
def test_types_as_text(text: str, shape: tuple[int, ...]) -> None:
    assert parse_type(text, "A") == TensorType(DType.F32, shape)


@pytest.mark.parametrize("dtype", DType)
def test_types_of_all_kinds_mean_the_same(dtype: DType) -> None:
    want = TensorType(dtype, (2, 3))
    array = np.zeros((2, 3), dtype.numpy)
    for given in (f"{dtype.value}[2,3]", want, (dtype.value, (2, 3)), (dtype, [2, 3]), (dtype.numpy, (2, 3))):
        assert as_type(given, "A") == want
    assert as_type(array, "A") == want
    if array.dtype.kind in "iuf" and array.dtype.itemsize > 1:
        assert as_type(array.astype(array.dtype.newbyteorder()), "A") == want


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("f31[3]", "did you mean"),
        ("complex64[3]", "'complex64'"),
        ("f32[3", "write an element type and sizes"),
        ("f32[-3]", "write an element type and sizes"),
        ("f32[3,,4]", "a size is missing"),
        ("f32[99999999999999999999]", "sizes go from 0"),
        ("f32[" + "9" * 10_000 + "]", "sizes go from 0"),
        ("f32[" + ",".join(["1"] * 40) + "]", "40 dimensions"),
        ("[" * 5000, "write an element type"),
        (("f32", (3, -1)), "sizes go from 0"),
        (("f32", (3, 1.5)), "expected an integer"),
        (("f32", (True,)), "expected an integer"),
        ((None, (3,)), "'None'"),
        (("f32", "34"), "expected an integer"),
        (3, "is given by 3"),
        (np.float32, "is given by <class"),
        (np.zeros(2, complex), "complex128"),
        (np.array(["a"]), "<U1"),
    ],
)
def test_types_that_can_not_be_read(given: Any, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        as_type(given, "A")
    assert caught.value.diagnostics[0].code == "D020"
    assert "'A'" in str(caught.value)
    assert said in str(caught.value)


def saved(path: Path, array: Any) -> Path:
    np.save(path, array, allow_pickle=True)
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="f4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)),
        np.arange(4, dtype=">i4"),
        np.zeros((0, 3), "f8"),
        np.array(2.5),
        np.array([True, False]),
        np.array([1, 2], ml_dtypes.bfloat16),
    ],
)
def test_npy_files_are_read(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    got = read_npy(saved(tmp_path / "a.npy", array), "A")
    assert got.dtype == array.dtype.newbyteorder("=")
    assert got.shape == array.shape
    np.testing.assert_array_equal(got, array)


class Bomb:
    """An object that would run code if it were ever unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a file was unpickled",))


def npy_with_header(path: Path, header: str, data: bytes = b"") -> Path:
    text = header.encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return path


def test_npy_files_that_can_not_be_used(tmp_path: Path) -> None:
    def fault(path: Path) -> str:
        with pytest.raises(CompileError) as caught:
            read_npy(path, "A")
        (found,) = caught.value.diagnostics
        assert found.code == "D021"
        assert found.message.startswith("input 'A'")
        return found.render()

    whole = saved(tmp_path / "whole.npy", np.arange(100.0))
    cut = tmp_path / "cut.npy"
    cut.write_bytes(whole.read_bytes()[:-8])
    assert "truncated: 792 bytes of data, 800 expected" in fault(cut)
    cut.write_bytes(whole.read_bytes()[:40])
    assert "can't be used" in fault(cut)
    cut.write_bytes(b"\x93NUM")
    assert "is no .npy file" in fault(cut)
    assert "pickled Python objects" in fault(saved(tmp_path / "objects.npy", np.array([Bomb()], object)))
    pickled = tmp_path / "pickled.npy"
    pickled.write_bytes(pickle.dumps(Bomb()))
    assert "is no .npy file" in fault(pickled)
    np.savez(tmp_path / "a.npz", np.zeros(3))
    assert "is a .npz archive" in fault(tmp_path / "a.npz")
    assert "elements of type complex128" in fault(saved(tmp_path / "c.npy", np.zeros(3, complex)))
    assert "directory" in fault(tmp_path)
    assert "No such file" in fault(tmp_path / "none.npy")
    bad = tmp_path / "bad.npy"
    for header in (
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3.5,), }",
        "{'descr': 'quux', 'fortran_order': False, 'shape': (3,), }",
        "{'shape': (3,)}",
        "[" * 5000,
        "__import__('os').getcwd()",
    ):
        assert "can't be used" in fault(npy_with_header(bad, header, b"\0" * 64))
    small = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    newer = npy_with_header(bad, small, b"\0" * 4)
    newer.write_bytes(newer.read_bytes().replace(b"NUMPY\x01", b"NUMPY\x09"))
    assert "version 9.0, which is not known" in fault(newer)
    huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    assert "truncated" in fault(npy_with_header(bad, huge))


def test_generated_inputs_are_seeded_and_typed() -> None:
    for dtype in DType:
        text = f"random:{dtype.value}[4,5]"
        one, same, other = make_input(text, "A", 1), make_input(text, "A", 1), make_input(text, "A", 2)
        assert (one.dtype, one.shape) == (dtype.numpy, (4, 5))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)
        assert not np.array_equal(one, make_input(text, "B", 1)), "each input has its own numbers"
        assert (make_input(f"ones:{dtype.value}[3]", "A", 0) == np.ones(3, dtype.numpy)).all()
    assert make_input("arange:i16[2,2]", "A", 0).tolist() == [[0, 1], [2, 3]]
    assert make_input("zeros:f32", "A", 0).shape == ()
    assert make_input("random:f32[0,3]", "A", 0).shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("randm:f32[3]", "D022", "did you mean 'random'"),
        ("random:f33[3]", "D020", "did you mean"),
        ("random:", "D020", "write an element type"),
        ("none.npy", "D021", "random:f32[3,4]"),
        ("c:/none.npy", "D021", "can't be read"),
        ("zeros:f32[" + "9" * 5000 + "]", "D020", "sizes go from 0"),
        ("random:f64[100000000,100000000]", "D011", "of memory; this machine has"),
    ],
)
def test_inputs_that_can_not_be_made(text: str, code: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        make_input(text, "A", 0)
    assert caught.value.diagnostics[0].code == code
    assert said in str(caught.value)


def test_memory_is_counted_in_all_and_the_largest_is_named() -> None:
    small, large = TensorType(DType.F32, (10,)), TensorType(DType.F32, (1 << 40, 4))
    check_memory([("A", small)], "it")
    with pytest.raises(CompileError, match=r"it needs 16.0 TiB.*\n.*'B', f32\[1099511627776, 4\]: 16.0 TiB"):
        check_memory([("A", small), ("B", large)], "it")


def test_sizes_in_words() -> None:
    assert [tensors.bytes_text(n) for n in (5, 1536, 1 << 30, 1 << 70)] == [
        "5 bytes",
        "1.5 KiB",
        "1.0 GiB",
        "1048576.0 PiB",
    ]
