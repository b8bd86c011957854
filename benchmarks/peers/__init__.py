"""The peers, one file each. `PEERS` has them by name, in the order in which they are shown."""

from __future__ import annotations

from benchmarks.peers import (
    halide,
    jax,
    mkl,
    numba,
    numpy,
    onednn,
    onnxruntime,
    openvino,
    ours,
    torch,
    torch_compile,
)
from benchmarks.peers.base import Peer

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        ours.PEER,
        numpy.PEER,
        onednn.PEER,
        mkl.PEER,
        torch.PEER,
        torch_compile.PEER,
        onnxruntime.PEER,
        openvino.PEER,
        jax.PEER,
        numba.PEER,
        halide.PEER,
    )
}
