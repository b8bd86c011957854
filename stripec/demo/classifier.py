"""A perceptron that scikit-learn trains on its handwritten digits, and its forward pass in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Classifier:
    """A trained model, the images it has not seen (n x 64, f32 in [0, 1]), and their true labels."""

    model: MLPClassifier
    images: Array
    labels: Array

    def inputs(self) -> dict[str, Array]:
        """The arguments of digits.tile."""
        (w1, w2), (b1, b2) = self.model.coefs_, self.model.intercepts_
        arrays = {"X": self.images, "W1": w1, "B1": b1, "W2": w2, "B2": b2}
        return {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}


def train() -> Classifier:
    """Train on three quarters of the digits; the same seed gives the same model."""
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    seen, unseen, seen_labels, unseen_labels = train_test_split(
        images, digits.target, test_size=0.25, random_state=0
    )
    model = MLPClassifier(hidden_layer_sizes=(64,), max_iter=200, tol=1e-3, random_state=0)
    model.fit(seen, seen_labels)
    return Classifier(model, unseen, unseen_labels)


def forward_with_numpy(X: Array, W1: Array, B1: Array, W2: Array, B2: Array) -> Array:
    """The label of the largest score for each image."""
    scores = np.maximum(X @ W1 + B1, 0) @ W2 + B2
    return np.asarray(scores.argmax(axis=1))
